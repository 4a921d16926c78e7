"""The loop of the combiner: it publishes nothing before it has the newest partial sums of every shard."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, Direct
from support.simulation.partition import Partition
from support.simulation.system import TOPICS
from tallystream.errors import TallystreamError
from tallystream_aggregator.stream import combiner_loop
from tallystream_aggregator.stream.broker import BrokerError, Place, UnavailableError
from tallystream_aggregator.stream.epochs import EpochRow, StepFailedError
from tallystream_aggregator.stream.loop import TopicChangedError
from tallystream_aggregator.stream.positions import LoopId, newest_row, summed
from tallystream_aggregator.stream.restore import MissingRowsError

SHARDS = [Place(TOPICS.shards, shard) for shard in range(2)]


def key(shard: int) -> bytes:
    """Return the ID of an instance in a shard."""
    return next(name for name in (b"app-%d" % n for n in range(20)) if crc32(name) % 2 == shard)


class Shards(Direct):
    """A table of two shards with a combiner. Each has counted 10, and all of it is published."""

    def __init__(self) -> None:
        super().__init__(shards=2)
        self.batch, self.stores = 0, [Batch(0), Batch(0), Batch(0)]
        self.loops = [self.loop(0), self.loop(1), self.combiner()]
        for shard in range(2):
            self.feed(10, key=key(shard))
        for loop in range(3):
            self.run(loop)

    def run(self, loop: int, seconds: float = 1) -> Any:
        """Run a loop for an epoch: a shard by its number, or the combiner."""
        self.batch += 1
        return self.loops[loop].run_epoch(self.stores[loop], (1, self.batch), seconds)

    def restart_combiner(self) -> None:
        """Begin again with a new combiner."""
        self.loops[2] = self.combiner()

    @property
    def counts(self) -> list[int]:
        """The counts that were published."""
        return [json.loads(value)["count"] for value in self.values()]


def test_a_count_does_not_fall_when_a_partition_is_missing_for_a_moment() -> None:
    """A combiner that starts without the partial sums of a shard would publish sums without it."""
    shards = Shards()
    assert shards.counts[-1] == 20
    shards.restart_combiner()
    shards.feed(11, key=key(0))
    shards.run(0)
    away = shards.cluster.topics[TOPICS.shards].partitions
    back_s = shards.monotonic() + 5
    shards.cluster.topics[TOPICS.shards].partitions = Missing(away, lambda: shards.monotonic() < back_s)
    shards.run(2, 60)
    assert shards.counts == sorted(shards.counts)
    assert shards.counts[-1] == 21


class Missing(list[Any]):
    """Partitions of which the second one is missing for a while."""

    def __init__(self, partitions: list[Any], is_missing: Any) -> None:
        super().__init__(partitions)
        self._is_missing, self._none = is_missing, None

    def __getitem__(self, number: Any) -> Any:
        return self._none if number == 1 and self._is_missing() else super().__getitem__(number)


def before_the_combiner_starts(monkeypatch: pytest.MonkeyPatch) -> Shards:
    """Return shards of which the first has a sum. The combiner begins again, and reads record by record."""
    monkeypatch.setattr(combiner_loop, "READ_AT_ONCE", 1)
    shards = Shards()
    shards.restart_combiner()
    shards.feed(11, key=key(0))
    shards.run(0)
    return shards


def test_compaction_while_the_combiner_starts_hides_no_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions row that it has published may be gone, and the next one after what it wanted to read."""
    shards = before_the_combiner_starts(monkeypatch)

    def fail(request: str) -> None:
        if request == "read":
            shards.fail = lambda _: None
            shards.feed(11, key=key(1))
            shards.run(1)
            shards.flush()
            partition = shards.cluster.partition(SHARDS[1])
            partition.compact(partition.end, markers=True, tombstones=True)

    shards.fail = fail
    shards.run(2, 5)
    assert shards.counts == sorted(shards.counts)
    assert shards.counts[-1] == 22


def test_a_combiner_that_was_stopped_while_it_started_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the partial sums of a part of the shards. Going on with them, it would publish lower counts."""
    shards = before_the_combiner_starts(monkeypatch)

    def fail(request: str) -> None:
        shards.stopped = request == "read"

    shards.fail = fail
    shards.run(2)
    shards.fail, shards.stopped = (lambda _: None), False
    shards.feed(12, key=key(0))
    shards.run(0)
    shards.run(2)
    assert shards.counts == sorted(shards.counts)


def test_what_a_shard_has_aborted_is_not_combined() -> None:
    """A step that failed may have had other sums than the one that replaces it."""
    shards = Shards()
    old = [(entry.key, entry.value) for entry in shards.cluster.partition(SHARDS[0]).entries if not entry.marker]
    shards.feed(11, key=key(0))
    shards.run(0)
    writer, cluster = "tallystream-aggregator-0", shards.cluster
    epoch = cluster.open_writer(writer) or 0
    cluster.add_partitions(writer, epoch, [SHARDS[0]])
    cluster.produce(writer, epoch, SHARDS[0], old)
    cluster.end(writer, epoch, "abort")
    shards.run(2, 5)
    assert shards.counts[-1] == 21


def test_a_sum_that_cannot_be_published_stops_the_combiner() -> None:
    """A step of the combiner can't be divided, so it is tried as it is."""
    shards = Shards()
    shards.feed(11, 12, key=key(0))
    shards.run(0)

    def fail(request: str) -> None:
        if "write metrics-agg" in request:
            raise BrokerError("it was refused")

    shards.fail = fail
    with pytest.raises(StepFailedError, match="it was refused"):
        shards.run(2, 600)


def test_offsets_of_a_sum_are_those_that_all_shards_include() -> None:
    """A partition that only some shards have begun to read is not among them."""
    shards = Shards()
    shards.cluster.create(TOPICS.metrics, 2)
    shards.run(0, 10)
    shards.feed(11, key=key(0))
    shards.feed(5, place=Place(TOPICS.metrics, 1), key=key(0), name="other")
    shards.run(0, 10)
    shards.run(2)
    assert [set(json.loads(value)["offsets"]["metrics"]) for value in shards.values()] == [{"0"}] * 3
    shards.run(1, 10)
    shards.feed(12, key=key(0))
    for loop in range(3):
        shards.run(loop)
    assert json.loads(shards.values()[-1])["offsets"] == {"metrics": {"0": 3, "1": 0}}


def test_a_combiner_that_starts_again_publishes_only_what_is_new() -> None:
    """It has a million sums, of which few have changed meanwhile."""
    shards = Shards()
    shards.feed(1, key=key(0), name="other")
    shards.run(0)
    shards.run(2)
    shards.restart_combiner()
    assert shards.run(2).sums == 0
    shards.restart_combiner()
    shards.feed(11, key=key(0))
    shards.run(0)
    assert shards.run(2).sums == 1


def test_the_report_of_an_epoch_has_what_the_combiner_did() -> None:
    """Since the end of the epoch before. It stores nothing, and writes no rows."""
    shards = Shards()
    positions = shards.run(2, 10).positions[TOPICS.shards]
    shards.feed(11, key=key(0))
    before_s = shards.monotonic()
    shards.run(0)
    meanwhile_s = shards.monotonic() - before_s
    report = shards.run(2, 10)
    after = report.positions[TOPICS.shards]
    assert report == EpochRow(
        2, steps=1, records=2, sums=1, seconds=10.0 + meanwhile_s, waited_s=10.0, positions={TOPICS.shards: after}
    )
    assert after == positions | {"0": shards.cluster.partition(SHARDS[0]).end - 1}  # before the marker


def test_a_part_of_a_step_of_a_shard_is_no_step_of_the_combiner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partial sums wait for the positions row that ends the step."""
    shards = Shards()
    monkeypatch.setattr(combiner_loop, "READ_AT_ONCE", 1)
    shards.restart_combiner()
    shards.run(2)
    shards.feed(11, key=key(0))
    shards.run(0)
    report = shards.run(2, 10)
    assert (report.records, report.steps) == (2, 1)


def test_a_shard_whose_positions_were_lost_does_not_begin_again() -> None:
    """Its partial sums are those of a table. Lower ones would replace them, and counts would fall."""
    shards = Shards()
    shards.cluster.topics[TOPICS.table].partitions[1] = Partition()
    shards.loops[1] = shards.loop(1)
    with pytest.raises(TallystreamError, match=r"metrics-shards: it has sums, .* in partition 1;"):
        shards.run(1)


def test_all_shards_begin_where_the_first_one_began() -> None:
    """A kill is between their first publications. The next start finds a table, and does not know where it began."""
    direct = Direct(shards=2)
    for shard in range(2):
        direct.feed(10, key=key(shard), name="before")
    begin = {METRICS: 2}
    direct.loop(1, begin=begin).run_epoch(Batch(0), (1, 1), 1)
    assert direct.published(Place(TOPICS.table, 1), 1) is None
    direct.loop(0, begin=begin).run_epoch(Batch(0), (1, 0), 1)
    for shard in range(2):
        direct.feed(3, key=key(shard))
    stores = [Batch(0), Batch(0)]
    for shard in (1, 0):
        direct.loop(shard).run_epoch(stores[shard], (2, shard), 1)
    direct.combiner().run_epoch(Batch(0), (2, 2), 1)
    assert [(json.loads(value)["name"], json.loads(value)["count"]) for value in direct.values()] == [("n", 6)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_loop_whose_first_publication_failed_begins_again(number: int) -> None:
    """What a transaction has left that was aborted is no sum."""
    direct, rows = Direct(shards=2), LoopId(TOPICS, number, 2).rows
    for shard in range(2):
        direct.feed(10, key=key(shard))
    refused = [UnavailableError("no answer")]

    def fail(request: str) -> None:
        if request.startswith(f"write {rows}") and refused:
            raise refused.pop()

    direct.fail = fail
    for loop in (direct.loop(0), direct.loop(1), direct.combiner()):
        loop.run_epoch(Batch(0), (1, 0), 5)
    assert not refused
    assert [json.loads(value)["count"] for value in direct.values()] == [20]


def test_sums_that_waited_for_the_other_shards_are_published_after_a_restart() -> None:
    """Before all shards have begun nothing is published, so the positions row must not say that it was."""
    direct, stores = Direct(shards=2), [Batch(0), Batch(0)]
    direct.feed(10, key=key(0))
    direct.loop(0).run_epoch(stores[0], (1, 0), 1)
    direct.combiner().run_epoch(Batch(0), (1, 1), 1)
    row = newest_row(direct.broker, Place(TOPICS.shards, 2), 2)
    assert row is not None
    assert summed(row) == {}
    direct.loop(1).run_epoch(stores[1], (1, 2), 1)
    direct.combiner().run_epoch(Batch(0), (1, 3), 1)
    assert [json.loads(value)["count"] for value in direct.values()] == [10]


@pytest.mark.parametrize("restart", [False, True])
def test_sums_that_were_deleted_stop_the_shards_while_they_run_and_at_the_next_start(restart: bool) -> None:
    """Partial sums that do not change would be missing on the new topic, and counts would fall."""
    shards = Shards()
    shards.cluster.delete(TOPICS.shards)
    shards.cluster.create(TOPICS.shards, 3)
    if restart:
        shards.loops = [shards.loop(0), shards.loop(1), shards.combiner()]
    shards.feed(11, key=key(0))
    for shard in range(2):
        with pytest.raises(TopicChangedError, match=r"metrics-shards: it was deleted .* run tallystream rebuild"):
            shards.run(shard, 10)
    with pytest.raises(TallystreamError, match="metrics-shards"):
        shards.run(2, 10)
    assert shards.counts == [20]


def test_a_combiner_whose_positions_were_lost_does_not_begin_again() -> None:
    """A shard may have published to a new topic before it has noticed that."""
    shards = Shards()
    shards.cluster.delete(TOPICS.shards)
    shards.cluster.create(TOPICS.shards, 3)
    shards.restart_combiner()
    for shard in range(2):
        shards.feed(11, key=key(shard), name="other")
        shards.run(shard, 0.1)
    with pytest.raises(MissingRowsError, match="metrics-agg: it has sums, and metrics-shards has no positions"):
        shards.run(2, 10)
    assert shards.counts == [20]


def test_partial_sums_that_were_deleted_stop_the_combiner() -> None:
    """The topic has a retention, or somebody has deleted records: those of a shard that do not change are missing."""
    shards = Shards()
    partition = shards.cluster.partition(SHARDS[1])
    partition.delete_before(partition.end)
    shards.restart_combiner()
    shards.feed(11, key=key(0))
    for shard in range(2):
        shards.run(shard)
    with pytest.raises(
        MissingRowsError, match=r"metrics-shards, partition 1: the records before .* delete metrics-shards"
    ):
        shards.run(2)
    assert shards.counts == [20]
