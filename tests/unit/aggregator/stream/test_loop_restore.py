"""The table of a shard at the published positions, from a state or from rows: old, ahead, or of another table."""

from __future__ import annotations

from contextlib import closing, nullcontext
from typing import Any

import pytest
from msgspec.structs import replace

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, TABLE, TOPICS, Direct
from tallystream_aggregator.stream import compaction, reading
from tallystream_aggregator.stream import loop as loop_module
from tallystream_aggregator.stream.broker import BrokerError, LostRecordsError, Output, Place, StoppedError
from tallystream_aggregator.stream.positions import LoopId, by_place, encode, key_of, newest_row
from tallystream_aggregator.stream.restore import LoopSettings, MissingRowsError, ReplayError, Restorer, read_to
from tallystream_aggregator.table import State, Table
from tallystream_aggregator.table.records.decode import shard_of
from tallystream_aggregator.table.sum_tags import SumTags

OTHER = Place("metrics", 1)


def killed_behind_its_rows(direct: Direct) -> None:
    """Publish four records, of which the rows have the first one, and kill the loop."""
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(1)

    def fail(request: str) -> None:
        if request == "read" and direct.published() == {METRICS: 4}:
            raise MemoryError
        if request == "read" and direct.published() == {METRICS: 1} and direct.cluster.partition(METRICS).end == 1:
            direct.feed(2, 3, 4)

    direct.fail = fail
    with pytest.raises(MemoryError):
        loop.run_epoch(direct.store, (1, 1), 1)
    direct.fail = lambda _: None


@pytest.mark.parametrize("first", [2, 4, 5, 6])
def test_a_table_that_is_made_of_its_rows_skips_lost_records_if_it_may(first: int) -> None:
    """Records that are published, and that the rows lack, were deleted: the message says how to continue."""
    direct = Direct()
    killed_behind_its_rows(direct)
    direct.feed(5, 6)
    direct.cluster.partition(METRICS).delete_before(first)
    with pytest.raises(LostRecordsError, match="--on-data-loss continue"):
        direct.loop().run_epoch(Batch(0), (2, 0), 10)
    direct.loop(skip_lost=True).run_epoch(Batch(0), (3, 0), 10)
    assert direct.published() == {METRICS: 6}
    assert (b'"count":6' in direct.values()[-1]) == (first < 6)


@pytest.mark.parametrize("few", [0, 2_000])
def test_the_rows_that_a_killed_loop_has_not_written_follow_though_nothing_new_comes(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is never ahead of them: both could be needed after the records are gone.

    A replay of many records leaves out those that later ones supersede.
    """
    monkeypatch.setattr(compaction, "FEW_RECORDS", few)
    direct = Direct()
    killed_behind_its_rows(direct)
    direct.loop().run_epoch(direct.store, (2, 0), 0.1)
    direct.feed(5)
    direct.cluster.partition(METRICS).delete_before(4)
    direct.loop().run_epoch(Batch(0), (3, 0), 1)
    assert b'"count":5' in direct.values()[-1]


def test_a_stop_ends_a_replay() -> None:
    """What is published may be far ahead of the rows."""
    direct, table = Direct(), Table(State(shard=0, shards=1), TABLE)
    direct.feed(1)
    with closing(direct.broker.source()) as source, pytest.raises(StoppedError):
        read_to(table, {METRICS: 1}, source, lambda: True)
    assert table.state.records == 0


def test_a_replay_skips_no_records_of_a_log_that_is_cut_off() -> None:
    """Only deleted ones: other records will have the offsets of those that are gone."""
    direct, table = Direct(), Table(State(shard=0, shards=1), TABLE)
    direct.feed(1)
    table.advance(str(METRICS), 1, 0)
    with closing(direct.broker.source()) as source, pytest.raises(LostRecordsError, match="lost the offsets 1 to 1"):
        read_to(table, {METRICS: 3}, source, direct.after(600), skip_lost=True)


def test_a_table_whose_rows_another_task_has_replaced_is_not_used() -> None:
    """The loop begins again, and finds that it is fenced."""
    direct = Direct()
    direct.feed(1)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    published = newest_row(direct.broker, ROWS, 0)
    assert published is not None
    direct.feed(2)
    direct.loop().run_epoch(direct.store, (2, 0), 2)
    restorer = Restorer(direct.broker, LoopSettings(LoopId(TOPICS), table=TABLE), lambda: False)
    with closing(direct.broker.source()) as source, pytest.raises(BrokerError, match="another task has published more"):
        restorer.table_at(published, None, source)


def test_a_log_that_was_cut_off_below_what_is_published_is_not_replayed() -> None:
    """A loop that waited there would take the next records for those that are published."""
    direct = Direct()
    killed_behind_its_rows(direct)
    direct.cluster.partition(METRICS).truncate(2)
    with pytest.raises(LostRecordsError, match="it lost the offsets 2 to 3"):
        direct.loop(skip_lost=True).run_epoch(Batch(0), (2, 0), 10)


def test_a_log_that_ends_before_what_is_published_is_not_waited_for() -> None:
    """As in a rebuild, which does not ask whether the last records are still the same."""
    direct = Direct()
    direct.feed(1, 2)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    published = newest_row(direct.broker, ROWS, 0)
    assert published is not None
    direct.cluster.partition(METRICS).truncate(1)
    restorer = Restorer(direct.broker, LoopSettings(LoopId(TOPICS), table=TABLE), direct.after(600))
    with closing(direct.broker.source()) as source, pytest.raises(LostRecordsError, match="it lost the offsets 1 to 1"):
        restorer.table_at(published, None, source)


def test_lost_records_of_an_old_state_are_not_skipped_if_the_rows_have_them() -> None:
    """An old copy of the checkpoint is older than the records. The rows are used, and no count falls."""
    direct = Direct()
    direct.feed(1)
    loop = direct.loop(skip_lost=True)
    loop.run_epoch(direct.store, (1, 0), 1)
    old = direct.store.copy(1)
    direct.feed(5, name="other")
    direct.feed(2)
    loop.run_epoch(direct.store, (1, 1), 1)
    direct.cluster.partition(METRICS).delete_before(3)
    direct.feed(6, name="other", key=b"app-2")
    direct.loop(skip_lost=True).run_epoch(old, (2, 0), 1)
    assert b'"count":11' in direct.values()[-1]


def test_records_of_an_added_partition_that_were_deleted_are_lost() -> None:
    """The table does not know the partition. Its records were published from the first one on."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    old = direct.store.copy(1)
    direct.cluster.create("metrics", 2)
    direct.feed(1, 2, place=OTHER)
    direct.loop().run_epoch(direct.store, (1, 1), 1)
    direct.cluster.partition(OTHER).delete_before(1)
    direct.cluster.partition(ROWS).compact(100, markers=True, tombstones=True)
    direct.loop().run_epoch(old, (2, 0), 1)
    assert direct.published() == {METRICS: 0, OTHER: 2}


class Unchecked(Restorer):
    """Takes every table, without asking what is published and what it has counted."""

    def _replay(self, table: Any, published: Any, source: Any, *, skip_lost: bool = False) -> None:
        read_to(table, by_place(published.positions), source, self._stopped, skip_lost=skip_lost)
        table.outputs()


@pytest.mark.parametrize("checked", [True, False])
def test_a_state_above_what_is_published_does_not_count(monkeypatch: pytest.MonkeyPatch, checked: bool) -> None:
    """After a loss of unflushed records, the dead letters that were lost with them are published again.

    A loop that continued the state would leave them out.
    """
    if not checked:
        monkeypatch.setattr(loop_module, "Restorer", Unchecked)
    direct = Direct()
    direct.feed(1)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.flush()
    outputs = direct.cluster.places("metrics-agg", "metrics-dead", "metrics-table")
    flushed = {place: direct.cluster.partition(place).end for place in outputs}
    direct.cluster.append(METRICS, b"app-1", b"{")
    direct.feed(2)
    loop.run_epoch(direct.store, (1, 1), 1)
    assert len(direct.values("metrics-dead")) == 1
    for place, end in flushed.items():
        direct.cluster.partition(place).truncate(end)
    direct.feed(3)
    direct.loop().run_epoch(direct.store, (2, 0), 1)
    assert direct.published() == {METRICS: 4}
    assert len(direct.values("metrics-dead")) == checked


def test_a_state_above_what_is_published_by_records_of_another_shard_does_not_count() -> None:
    """They count nothing there, but a broker that has lost them gives their offsets to the next records."""
    direct = Direct(shards=2)
    own, other = (next(b"app-%d" % n for n in range(20) if shard_of(b"app-%d" % n, 2) == shard) for shard in (0, 1))
    direct.feed(1, key=own)
    loop = direct.loop(0)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.flush()
    places = direct.cluster.places(TOPICS.metrics, TOPICS.shards, TOPICS.table)
    flushed = {place: direct.cluster.partition(place).end for place in places}
    direct.feed(9, key=other)
    loop.run_epoch(direct.store, (1, 1), 1)
    for place, end in flushed.items():
        direct.cluster.partition(place).truncate(end)
    direct.feed(2, key=own)
    direct.loop(0).run_epoch(direct.store, (2, 0), 1)
    assert b'"records":2,' in direct.values(TOPICS.shards)[-1]


def test_a_state_of_other_tags_is_not_used() -> None:
    """A checkpoint may be left from before a rebuild, with the same positions and counts of records."""
    before, direct = Direct(), Direct()
    for one, tags in ((before, SumTags(drop=("k",))), (direct, SumTags())):
        one.feed(1)
        one.loop(sum_tags=tags).run_epoch(one.store, (1, 0), 1)
    direct.feed(2)
    loop = direct.loop()
    loop.run_epoch(before.store, (2, 0), 1)
    assert loop._table.state.sum_tags == SumTags()
    assert direct.published() == {METRICS: 2}


def test_a_state_of_an_earlier_table_is_not_used() -> None:
    """The topics were deleted and created again, and the checkpoint stayed. It has as many records at its positions."""
    direct = Direct()
    direct.feed(5)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    for topic in (TOPICS.metrics, TOPICS.agg, TOPICS.table):
        direct.cluster.delete(topic)
        direct.cluster.create(topic, 1)
    direct.feed(1)
    direct.loop().run_epoch(Batch(0), (2, 0), 1)
    direct.feed(2)
    direct.loop().run_epoch(direct.store, (3, 0), 1)
    assert b'"count":2' in direct.values()[-1]
    assert not direct.values(TOPICS.dead)


def test_rows_are_read_in_a_number_of_requests_that_does_not_depend_on_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted topic has many more offsets than rows, and each range of offsets needs a consumer of its own."""
    monkeypatch.setattr(reading, "READ_AT_ONCE", 5)
    direct = Direct()
    loop = direct.loop()
    for value in range(100):
        direct.feed(value)
        loop.run_epoch(direct.store, (1, value), 1)
    partition = direct.cluster.partition(ROWS)
    partition.compact(partition.end, markers=True, tombstones=True)
    direct.requests.clear()
    direct.feed(100)
    direct.loop().run_epoch(Batch(0), (2, 0), 0.2)
    assert direct.published() == {METRICS: 101}
    assert len(direct.requests) < 40


def test_a_table_is_not_made_of_a_part_of_its_rows() -> None:
    """Rows of lives that do not change were deleted, as by a retention. Counts would fall."""
    direct = Direct()
    loop = direct.loop()
    direct.feed(1)
    loop.run_epoch(direct.store, (1, 0), 1)
    before = direct.cluster.partition(ROWS).end
    direct.feed(5, key=b"app-2")
    loop.run_epoch(direct.store, (1, 1), 2)
    direct.flush()
    direct.cluster.partition(ROWS).delete_before(before)
    direct.feed(6, key=b"app-2")
    with pytest.raises(MissingRowsError, match=r"metrics-table, partition 0: the records before .* begin a new table"):
        direct.loop().run_epoch(Batch(0), (2, 0), 3)
    direct.loop().run_epoch(direct.store, (3, 0), 3)
    assert b'"count":7' in direct.values()[-1]


def test_a_table_without_the_row_of_its_shard_names_the_remedy() -> None:
    """Its other rows are there. They can't be used without the offsets that they include."""
    direct = Direct()
    direct.feed(1)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    direct.broker.writer("tallystream-aggregator-0").commit([Output(ROWS, b'["shard",0]', None)])
    with pytest.raises(MissingRowsError, match=r"metrics-table, partition 0: it has positions.* begin a new table"):
        direct.loop().run_epoch(Batch(0), (2, 0), 1)


@pytest.mark.parametrize(
    ("partitions", "counted", "agrees"),
    [
        (1, {"records": 3}, False),
        (1, {"dead": 1}, False),
        (1, {"stale": 1}, False),
        (2, {"records": 3}, False),
        (2, {"stale": 1}, True),
    ],
)
def test_rows_must_lead_to_what_is_published(partitions: int, counted: dict[str, int], agrees: bool) -> None:
    """Somebody has changed records or rows. A table that counts other records, dead or stale ones must not go on.

    Which records of several partitions are stale may differ, as their order may.
    """
    direct = Direct(partitions=partitions)
    direct.feed(1, 2)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    published = newest_row(direct.broker, ROWS, 0)
    assert published is not None
    changed = Output(ROWS, key_of(0), encode(replace(published, **counted)))
    direct.broker.writer("tallystream-aggregator-0").commit([changed])
    problem = r"counts \(2, 0, 0\) .* begin a new table"
    with nullcontext() if agrees else pytest.raises(ReplayError, match=problem):
        direct.loop().run_epoch(direct.store, (2, 0), 10)
