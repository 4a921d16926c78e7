"""A change of a table's layout: other tags of the sums, a stop before the commit, and counts that the rows lack.

`test_loop_simulation.py` changes the number of shards through kills, pauses and takeovers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, TABLE, Direct
from support.simulation.system import LEASE, TOPICS
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.stream import combiner_loop
from tallystream_aggregator.stream.broker import FencedError, Place, StoppedError
from tallystream_aggregator.stream.loop import TopicChangedError
from tallystream_aggregator.stream.positions import Layout, LoopId, newest_row, visible_row
from tallystream_aggregator.stream.reshard import NoTableError, Resharder
from tallystream_aggregator.stream.restore import rows_of
from tallystream_aggregator.table import rows
from tallystream_aggregator.table.sum_tags import SumTags

DROP = SumTags(drop=("k",))
SHARDS = 3
WRITER = f"open {LoopId(TOPICS).transactional_id}"


class Changed(Direct):
    """A table of one shard with a counter in two instances, under three tags. `stops_at` is what is said before."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster.create(TOPICS.table, SHARDS)
        self.cluster.create(TOPICS.shards, SHARDS + 1)
        self.layout, self.said, self.stops_at = Layout(), list[str](), ""
        for number, key in enumerate((b"app-1", b"app-2", b"app-2")):
            self.feed_tagged(key, str(number), 10**number)
        self.run()

    def feed_tagged(self, key: bytes, tag: str, value: int) -> None:
        """Append a value of a counter with a tag."""
        self.cluster.append(METRICS, key, b'{"name":"n","tags":{"k":"%s"},"value":%d}' % (tag.encode(), value))

    def run(self, store: Batch | None = None) -> None:
        """Run all loops for an epoch, as a driver with a higher generation, each with a lost checkpoint."""
        self.shards = self.layout.shards
        loops: list[Any] = [self.loop(n, sum_tags=self.layout.sum_tags) for n in range(self.shards)]
        loops += [self.combiner()] if self.shards > 1 else []
        self.cluster.now_ms += 1000
        for number, loop in enumerate(loops):
            loop.run_epoch(store or Batch(0), (self.cluster.now_ms, number), 1)

    def say(self, line: str) -> None:
        """Take a line of the progress."""
        self.said.append(line)
        self.stopped |= bool(self.stops_at) and line.startswith(self.stops_at)

    def change(self, **asked: Any) -> Layout:
        """Change the layout."""
        writer = self.broker.writer(LEASE)
        resharder = Resharder(self.broker, TOPICS, TABLE, stopped=lambda: self.stopped, say=self.say)
        self.cluster.now_ms += 1000
        done = resharder.run((self.cluster.now_ms, 0), **asked)
        writer.commit(done.records)
        self.layout = done.new
        return self.layout

    def visible(self) -> Layout | None:
        """Return the layout as anybody sees it."""
        row = visible_row(self.broker, ROWS, 0)
        return None if row is None else row.layout

    @property
    def sums(self) -> dict[str | None, int]:
        """The newest count on `metrics-agg` by the tag, None for a sum without it."""
        found = map(json.loads, self.values())
        return {one.get("tags", {}).get("k"): one["count"] for one in found}


@pytest.mark.parametrize("shards", [1, 2])
def test_other_tags_replace_all_sums(shards: int) -> None:
    """Sums that the table has no longer become 0. What is fed later is added. A change back gives the sums again."""
    table = Changed()
    assert table.sums == {"0": 1, "1": 10, "2": 100}
    assert table.change(sum_tags=DROP, shards=shards) == Layout(shards, DROP)
    if shards > 1:
        table.run()  # without shards they are replaced at once
    assert table.sums == {"0": 0, "1": 0, "2": 0, None: 111}
    table.feed_tagged(b"app-1", "0", 2)
    table.run()
    assert table.sums[None] == 112
    table.change(sum_tags=SumTags())
    assert shards > 1 or table.sums == {"0": 2, "1": 10, "2": 100, None: 0}
    table.run()
    assert table.sums == {"0": 2, "1": 10, "2": 100, None: 0}
    assert shards > 1 or not any(one.end for one in table.cluster.topics[TOPICS.shards].partitions)


def test_each_row_is_in_the_partition_of_its_shard_alone() -> None:
    """What the old layout had elsewhere is deleted."""
    table = Changed()
    table.change(shards=3)
    rows_of_shards = [rows_of(table.broker, Place(TOPICS.table, shard)).rows for shard in range(3)]
    keys = [key for rows in rows_of_shards for (_, key), value in rows.items() if value is not None]
    assert len(keys) == len(set(keys)) > 3


@pytest.mark.parametrize("shards", [1, 2])
def test_without_a_change_all_sums_are_published_again(shards: int) -> None:
    """Somebody has deleted them. One of them does not change any more."""
    table = Changed()
    if shards > 1:
        table.change(shards=shards)
        table.run()
    agg = Place(TOPICS.agg, 0)
    table.flush()
    table.cluster.partition(agg).delete_before(table.cluster.partition(agg).end)
    table.feed_tagged(b"app-1", "0", 3)
    table.run()
    assert table.sums == {"0": 3}
    table.change()
    table.run()
    assert table.sums == {"0": 3, "1": 10, "2": 100}


def require_all_sums_after_a_rebuild(table: Changed) -> None:
    """Require that a rebuild without a change publishes the sums of three instances, and that the loops go on."""
    table.change()
    table.run()
    assert table.sums == {"0": 1, "1": 10, "2": 100}
    table.feed_tagged(b"app-1", "0", 3)
    table.run()
    assert table.sums == {"0": 3, "1": 10, "2": 100}


@pytest.mark.parametrize("topic", [TOPICS.agg, TOPICS.shards])
def test_a_topic_of_sums_that_was_created_again_gets_all_of_them(topic: str) -> None:
    """The loops have refused to go on. Afterwards they do, and no sum is missing."""
    table = Changed()
    table.change(shards=2)
    table.run()
    partitions = len(table.cluster.topics[topic].partitions)
    table.cluster.delete(topic)
    table.cluster.create(topic, partitions)
    with pytest.raises(TopicChangedError, match=topic):
        table.run()
    require_all_sums_after_a_rebuild(table)


@pytest.mark.parametrize("written", [0, 9])
@pytest.mark.parametrize("restart", [True, False])
def test_partial_sums_that_were_cut_off_are_published_again(restart: bool, written: int) -> None:
    """The combiner stops, and names that remedy: the table has all of them, and need not begin anew.

    That others have their offsets by then changes nothing.
    """
    table = Changed()
    table.change(shards=2)
    table.run()
    combiner = table.combiner()
    combiner.run_epoch(Batch(0), (table.cluster.now_ms, 2), 1)
    if restart:
        combiner = table.combiner()
    table.cluster.partition(Place(TOPICS.shards, 0)).truncate(2)
    for _ in range(written):
        table.cluster.append(Place(TOPICS.shards, 0), b"other", None)
    with pytest.raises(
        TallystreamError,
        match=r"metrics-shards, partition 0: it lost the offsets [12] .* read; run tallystream rebuild",
    ):
        combiner.run_epoch(Batch(0), (table.cluster.now_ms, 3), 60)
    require_all_sums_after_a_rebuild(table)


def test_no_count_falls_when_the_combiner_begins_after_a_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has published nothing by its positions, and the sums of all moments are on the topics of the shards."""
    monkeypatch.setattr(combiner_loop, "READ_AT_ONCE", 1)
    table = Changed()
    table.change(shards=2)
    for value in (3, 5):
        table.run()
        table.feed_tagged(b"app-1", "0", value)
    table.run()
    table.change()
    table.combiner().run_epoch(Batch(0), (table.cluster.now_ms, 2), 60)
    counts = [one["count"] for one in map(json.loads, table.values()) if one.get("tags") == {"k": "0"}]
    assert counts == sorted(counts)
    assert counts[-1] == 5


def test_fewer_shards_and_a_missing_table_are_refused() -> None:
    """Nothing is written for them."""
    table = Changed()
    table.change(shards=3)
    with pytest.raises(ConfigError, match="the table has 3; it can be split into more, never into fewer"):
        table.change(shards=2)
    empty = Direct()
    with pytest.raises(NoTableError, match="no positions of shard 0; start the aggregator first"):
        Resharder(empty.broker, TOPICS, TABLE).run((1, 0), shards=2)
    partly = Direct(shards=2)
    partly.loop(0).run_epoch(Batch(0), (1, 0), 1)
    with pytest.raises(NoTableError, match="no positions of shard 1; start the aggregator first"):
        Resharder(partly.broker, TOPICS, TABLE).run((2, 0))


@pytest.mark.parametrize("stops_at", ["shard 0 of 1", "2 lives", "writing"])
def test_a_stop_before_the_commit_changes_nothing(stops_at: str) -> None:
    """No transaction stays open, and the table goes on with its old layout."""
    table = Changed()
    table.stops_at = stops_at
    with pytest.raises(StoppedError):
        table.change(shards=2)
    table.flush()
    assert table.visible() == Layout()
    bounds = table.cluster.bounds(table.cluster.places(TOPICS.table, TOPICS.agg))
    assert all(found.stable == found.end for found in bounds.values())
    table.stopped = False
    with pytest.raises(FencedError, match="a newer task has it"):  # the tasks of before have ended for good
        table.loop().run_epoch(Batch(0), (1, 9), 1)
    table.feed_tagged(b"app-1", "0", 7)
    table.run()
    assert table.sums == {"0": 7, "1": 10, "2": 100}


def test_a_stop_before_the_commit_keeps_what_the_combiner_has_published() -> None:
    """Without its positions it would publish all sums again."""
    table, place = Changed(), Place(TOPICS.shards, 2)
    table.change(shards=2)
    table.run()
    before = newest_row(table.broker, place, 2)
    table.stops_at = "writing"
    with pytest.raises(StoppedError):
        table.change()
    after = newest_row(table.broker, place, 2)
    assert before is not None
    assert after is not None
    assert (after.positions, after.shards, after.step) == (before.positions, before.shards, before.step + 1)


def test_a_rebuild_without_its_markers_is_not_ended_by_a_loop() -> None:
    """A loop sees a part of it. It waits, and then names what ends the transaction as a whole."""
    table = Changed()

    def fail(request: str) -> None:
        if request == f"commit {LEASE}":
            table.lost = [ROWS]

    table.fail = fail
    table.change(sum_tags=DROP)
    table.flush()
    table.lost = ()
    with pytest.raises(TallystreamError, match="abort --topic metrics-table --partition 0"):
        table.loop().run_epoch(Batch(0), (table.cluster.now_ms, 9), 600)
    assert table.visible() == Layout()


def test_a_stop_before_the_first_claim_fences_nobody() -> None:
    """The table's tasks go on."""
    table = Changed()
    opened = table.requests.count(WRITER)
    table.stopped = True
    resharder = Resharder(table.broker, TOPICS, TABLE, stopped=lambda: table.stopped)
    with pytest.raises(StoppedError):
        resharder.run((table.cluster.now_ms + 1000, 0), shards=2)
    assert table.requests.count(WRITER) == opened


def test_lives_whose_rows_are_too_large_lose_no_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Their rows have only the number of their metrics, so the layout can't be changed. The log says so."""
    table = Changed()
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 100)  # one metric
    table.feed_tagged(b"app-2", "2", 101)
    table.run()
    assert "lack their counts" not in caplog.text
    with pytest.raises(TallystreamError, match=r"rows of 1 lives were too large.*app-2.*tallystream forget"):
        table.change(sum_tags=DROP)
    assert "1 lives lack their counts" in caplog.text
    assert table.sums == {"0": 1, "1": 10, "2": 101}


def test_a_claim_below_that_of_the_table_changes_nothing_and_fences_nobody() -> None:
    """A newer driver has the table. Its task goes on with the writer that it has."""
    table = Changed()
    opened = table.requests.count(WRITER)
    with pytest.raises(FencedError, match=r"shard 0: a newer task has it, with the claim .*; this one has \(1, 0\)"):
        Resharder(table.broker, TOPICS, TABLE).run((1, 0), shards=2)
    assert table.requests.count(WRITER) == opened > 0
    assert table.visible() == Layout()
