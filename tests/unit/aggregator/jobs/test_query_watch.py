"""What the driver follows: the query, the table's rows, and the clock records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from support.simulation.direct import ROWS, TOPICS, Direct
from tallystream.testing import ManualClock
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.jobs.aggregate.clock_records import EVERY_S, UNMOVED_S, ClockTimer, _log_failure
from tallystream_aggregator.jobs.aggregate.query_watch import QueryWatch
from tallystream_aggregator.jobs.aggregate.table_tail import LAST, MAX_READS, TableTail
from tallystream_aggregator.stream.broker import Chunk, Place
from tallystream_aggregator.stream.epochs import EpochRow
from tallystream_aggregator.stream.positions import PositionsRow

AT = {"metrics": {"0": 5}}


class Outside:
    """Stands in for the query, the end of `metrics-table`, the group and the broker."""

    def __init__(self, loops: int = 1) -> None:
        self.positions: dict[int, PositionsRow] = {}
        self.shards: dict[int, Any] = {}
        self.places = [Place("metrics-table", loop) for loop in range(loops)]
        self.lastProgress: dict[str, Any] | None = None
        self.committed: list[Any] = []
        self.clocks: list[Any] = []
        self.refuses, self.moves, self.end = False, True, 100
        self.code: int = KafkaError._TIMED_OUT

    def end_epoch(self, batch: int, *rows: EpochRow) -> Any:
        """End a batch of the query, and return the query."""
        shards = [msgspec.json.encode(row).decode() for row in rows]
        self.lastProgress = {"batchId": batch, "observedMetrics": {"epochs": {"shards": shards}}}
        return self

    def publish(self, loop: int, *ends: int, generation: int = 2, restoring: bool = False) -> None:
        """Move a shard to an end, or the combiner to the ends of several shards."""
        positions = [{"metrics": {"0": end}} for end in ends]
        shards = {str(shard): one for shard, one in enumerate(positions)} if len(ends) > 1 else {}
        claim = generation, 0
        self.positions[loop] = PositionsRow(
            shard=loop, claim=claim, restoring=restoring, step=1, positions=positions[0], topics={}, shards=shards
        )

    def poll(self, _: Any) -> bool:
        """Tell whether something is new."""
        return self.moves

    def commit(self, offsets: Any) -> None:
        """Note the offsets of the group."""
        if self.refuses:
            raise KafkaException(KafkaError(self.code))
        self.committed.append(offsets)

    def ends(self, places: Any) -> dict[Place, int]:
        """Return ends."""
        return dict.fromkeys(places, self.end)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health("aggregate", HealthSettings(), clock=clock)


def watch(outside: Any, health: Health | None = None, **options: Any) -> QueryWatch:
    """Return what follows a query of generation 2."""
    watched = QueryWatch(
        outside,
        broker=outside,
        append_clocks=outside.clocks.append,
        commit_offsets=outside.commit,
        health=health or Health("aggregate", HealthSettings()),
        otlp=("otlp",),
        **options,
    )
    watched.reset(2)
    return watched


def test_each_finished_epoch_is_noted_once(health: Health) -> None:
    """With the steps of all shards. Another query begins at the batch that the one before did not finish."""
    query: Any = Outside(2)
    rows = EpochRow(0, steps=2, positions=AT), EpochRow(1, steps=3, positions=AT)
    watched = watch(query, health)
    watched.look(query)
    for batch in (7, 7, 8):
        watched.look(query.end_epoch(batch, *rows))
    watched.reset(3)
    watched.look(query.end_epoch(8, *rows))
    lines = [line for line in health.metrics().text.splitlines() if line.startswith("tallystream_steps_total")]
    assert [float(line.split()[-1]) for line in lines] == [15]


def test_the_positions_of_an_epoch_are_those_that_all_shards_have_published() -> None:
    """The combiner's are not among them. They stay when a loop ends an epoch without positions."""
    query = Outside(3)
    watched = watch(query)
    rows = [EpochRow(n, positions={"metrics": {"0": at}}) for n, at in enumerate((7, 5, 4))]
    watched.look(query.end_epoch(0, *rows))
    watched.look(query.end_epoch(1, EpochRow(0), *rows[1:]))
    assert watched.positions == {"metrics": {"0": 5}}


def test_the_last_epoch_is_the_one_in_which_every_loop_saw_the_request_to_stop() -> None:
    """One that had ended before it goes on with its steps, and the next epoch stores them."""
    query, told = Outside(), []
    watched = watch(query)
    for batch, stopped in enumerate(((False, False), (True, False), (True, True))):
        watched.look(query.end_epoch(batch, *(EpochRow(shard, stopped=one) for shard, one in enumerate(stopped))))
        told.append(watched.stopped)
    assert told == [False, False, True]


def test_a_loop_that_waits_for_the_broker_is_alive_and_not_ready(health: Health) -> None:
    """Its epochs end without positions. Their number shows that it is not stuck."""
    query, ready = Outside(), []
    watched = watch(query, health)
    for batch, positions in enumerate((AT, {}, {}, AT)):
        watched.look(query.end_epoch(batch, EpochRow(0, positions=AT), EpochRow(1, positions=positions)))
        ready.append(health.status.unready_reason() is None)
    assert ready == [True, False, False, True]
    assert health.status.unhealthy_reason() is None


def test_offsets_are_committed_when_they_move() -> None:
    """A commit that failed is repeated. The first one sets all, whatever an earlier table has left."""
    outside = Outside()
    watched = watch(outside)
    for end, outside.refuses in ((0, False), (0, False), (1, True), (1, False)):
        outside.publish(0, end)
        watched.follow(last=True)
    assert outside.committed == [{Place("metrics", 0): 0}, {Place("metrics", 0): 1}]


def test_offsets_that_can_t_be_committed_hold_up_nothing_else(health: Health) -> None:
    """The permission for the group may be missing, or a consumer may have joined it. Time passes in the topic."""
    outside = Outside()
    watched = watch(outside, health)
    outside.publish(0, 8)
    outside.refuses = True
    watched.follow()
    watched._timer.due({Place("metrics", 0): outside.end}, time.monotonic() - UNMOVED_S)
    watched._watched_s = float("-inf")
    watched.follow()
    assert [Place("metrics", 0)] in outside.clocks
    assert health.status.unready_reason() is None


def test_a_failure_that_lasts_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """That of the group is looked at twice a second, and each quiet partition gets a clock record a second."""
    outside = Outside()
    outside.publish(0, 8)
    outside.refuses, outside.code = True, KafkaError.GROUP_AUTHORIZATION_FAILED
    watched = watch(outside)
    caplog.set_level("INFO")
    for _ in range(3):
        watched.follow(last=True)
        _log_failure(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS), None)
    assert sorted(record.levelname for record in caplog.records) == ["INFO", "WARNING"]


def test_a_query_is_ready_when_all_loops_work() -> None:
    """A loop claims its shard before it makes its table again. It works when it has published another step.

    The positions of an earlier generation do not count.
    """
    outside = Outside(loops=3)
    watched = watch(outside)
    ready = []
    for loop, generation, restoring in ((0, 2, 0), (1, 2, 1), (2, 1, 0), (2, 2, 1), (1, 2, 0), (2, 2, 0)):
        outside.publish(loop, 5, generation=generation, restoring=bool(restoring))
        watched.follow(last=True)
        ready.append(watched.is_ready)
    assert ready == [False] * 5 + [True]


def test_a_long_restore_leaves_the_aggregator_alive_and_not_ready(health: Health, clock: ManualClock) -> None:
    """Its claim is published, and nothing else for an hour. A restart would begin the same again."""
    outside = Outside()
    watched = watch(outside, health)
    outside.publish(0, 5, restoring=True)
    watched.follow(last=True)
    clock.advance(3600)
    assert health.status.unhealthy_reason() is None
    assert health.status.unready_reason() is not None


def test_a_catch_up_is_done_when_all_loops_have_published_up_to_its_ends() -> None:
    """What an earlier driver has published may be of a topic that was deleted and created again: a loop looks first."""
    outside = Outside()
    watched = watch(outside, ends={"metrics": {"0": 8}})
    done = []
    for end, generation, restoring in ((9, 1, False), (9, 2, True), (7, 2, False), (8, 2, False)):
        outside.publish(0, end, generation=generation, restoring=restoring)
        watched.follow(last=True)
        done.append(watched.is_done)
    assert done == [False, False, False, True]


def test_the_lowest_positions_of_all_shards_are_published() -> None:
    """Each shard reads every partition, and the combiner has the positions of each. Before it publishes, there is none.

    A partition that one shard has not begun to read was added since the last run: the sums lack that shard's part.
    """
    outside = Outside(loops=3)
    watched = watch(outside, ends={"metrics": {"0": 7, "1": 3}})
    outside.publish(0, 9)
    outside.publish(1, 9)
    watched.follow(last=True)
    assert outside.committed == []
    outside.publish(2, 8, 7)
    found, done = outside.positions[2], []
    for shard in ("0", "1"):
        found.shards[shard]["metrics"]["1"] = 3
        watched.follow(last=True)
        done.append(watched.is_done)
    assert done == [False, True]
    assert outside.committed == [{Place("metrics", 0): 7}, {Place("metrics", 0): 7, Place("metrics", 1): 3}]


def test_the_lag_grows_while_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may be stalled. While all is published, nothing is overdue, however long there is no record."""
    outside = Outside()
    outside.publish(0, 100)
    watched = watch(outside)
    noted: list[Any] = []
    monkeypatch.setattr(watched._health.progress, "watched", lambda at, ends, *_, **__: noted.append((at, ends)))
    watched.follow(last=True)
    outside.moves = False
    watched.follow(last=True)
    outside.end = 150
    watched.follow(last=True)
    published = {Place("metrics", 0): 100}
    assert noted == [(published, published)] * 2 + [(published, {Place("metrics", 0): 150})]


def test_own_partitions_get_clock_records() -> None:
    """Topics of OTLP metrics belong to others. With a catch-up, no record of our own may stay on a topic.

    None is appended after the end of the query.
    """
    outside = Outside()
    outside.publish(0, 8)
    found = outside.positions[0]
    found.positions["otlp"] = {"0": 3}
    for options in ({}, {"ends": {"metrics": {"0": 9}}}):
        watched = watch(outside, **options)
        watched.follow()
        watched._timer.due({Place("metrics", 0): outside.end}, time.monotonic() - UNMOVED_S)
        watched.follow(last=True)
        watched._watched_s = float("-inf")
        watched.follow()
    assert outside.clocks == [[], [Place("metrics", 0)]]


class BusySource:
    """A source whose first partition always has a new record. No other one has any."""

    def __init__(self) -> None:
        self.reads = 0

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Do nothing."""

    def read(self, max_records: int, timeout_s: float) -> list[Chunk]:
        """Return the next record."""
        del max_records, timeout_s
        self.reads += 1
        assert self.reads <= MAX_READS
        return [Chunk(ROWS, [(self.reads, 0, b"other", b"")], self.reads + 1)]

    def close(self) -> None:
        """Do nothing."""


def test_the_newest_rows_of_a_loop_are_found_at_the_end() -> None:
    """They are those of the newest step. Without a new one nothing is read, and of many rows only the last."""
    direct = Direct()
    tail = TableTail(direct.broker.source(committed=True), TOPICS, 1)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    for value in range(3):
        direct.feed(value, key=b"app-%d" % value)
        loop.run_epoch(direct.store, (1, value), 2)
    ends = {ROWS: direct.broker.bounds([ROWS])[ROWS].end}
    assert (tail.poll(ends), tail.poll(ends)) == (True, False)
    positions, shard = tail.positions[0], tail.shards[0]
    assert (positions.records, shard.records, shard.lives) == (3, 3, 3)
    for _ in range(LAST):
        direct.cluster.append(ROWS, b"other", b"")
    assert tail.poll({ROWS: ends[ROWS] + LAST})
    assert tail.positions[0] == positions


def test_a_poll_ends_though_an_open_transaction_holds_back_a_loop_and_others_go_on() -> None:
    """The driver has more to do: it commits offsets, and notices that its query has ended."""
    source = BusySource()
    tail = TableTail(source, TOPICS, 2)
    assert tail.poll({ROWS: 1, Place(ROWS.topic, 1): 5})


ONE, TWO = Place("metrics", 0), Place("metrics", 1)


def test_a_partition_whose_end_does_not_move_for_a_second_needs_a_record() -> None:
    """So does one that appears later. Its own clock record moves the end and begins another second."""
    timer = ClockTimer()
    assert timer.due({ONE: 5}, 0.0) == []
    assert timer.due({ONE: 6, TWO: 0}, 0.5) == []
    assert timer.due({ONE: 6, TWO: 0}, 1.25) == []
    assert timer.due({ONE: 6, TWO: 0}, 1.5) == [ONE, TWO]
    assert timer.due({ONE: 7, TWO: 1}, 2.0) == []
    assert timer.due({ONE: 7, TWO: 2}, 3.0) == [ONE]


def test_a_busy_partition_needs_a_record_every_minute() -> None:
    """Else no life of it would ever be forgotten."""
    timer = ClockTimer()
    due_s = [second for second in range(200) if timer.due({ONE: second}, float(second))]
    assert due_s == [60, 120, 180]
    assert EVERY_S == 60


def test_many_partitions_get_as_many_records_a_second_as_fifty() -> None:
    """With a hundred partitions the second becomes two."""
    timer = ClockTimer()
    ends = {Place("metrics", number): 0 for number in range(100)}
    found = [len(timer.due(ends, second / 2)) for second in range(9)]
    assert found == [0, 0, 0, 0, 100, 0, 0, 0, 100]
