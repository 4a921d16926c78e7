"""What the driver tells others about a query: offsets, the ledger, and when a catch-up is done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from tallystream.testing import ManualClock
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.jobs.aggregate.clock_records import UNMOVED_S
from tallystream_aggregator.jobs.aggregate.query_watch import QueryWatch
from tallystream_aggregator.stream.broker import BrokerError, Place
from tallystream_aggregator.stream.epochs import EpochRow
from tallystream_aggregator.stream.positions import PositionsRow

if TYPE_CHECKING:
    import pytest

    from tallystream_aggregator.kafka.ledger import LedgerRow


def row(shard: int, end: int) -> EpochRow:
    positions = {"metrics": {"0": end}} if end else {}
    return EpochRow(shard, steps=1, seconds=1.0, state_bytes=9, positions=positions)


class Outside:
    """Stands in for the end of `metrics-table`, the group, the ledger and the broker."""

    def __init__(self, loops: int = 1) -> None:
        self.positions: dict[int, PositionsRow] = {}
        self.shards: dict[int, Any] = {}
        self.places = [Place("metrics-table", loop) for loop in range(loops)]
        self.now = 2
        self.committed: list[Any] = []
        self.written: list[LedgerRow] = []
        self.clocks: list[Any] = []
        self.fails, self.refuses, self.moves, self.end = False, False, True, 100

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
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.committed.append(offsets)

    def ends(self, places: Any) -> dict[Place, int]:
        """Return ends."""
        return dict.fromkeys(places, self.end)

    def write(self, rows: list[LedgerRow]) -> None:
        """Note rows of the ledger."""
        if self.fails:
            raise BrokerError("no answer")
        self.written += rows


def watch(outside: Outside, health: Health | None = None, **options: Any) -> QueryWatch:
    health = health or Health("aggregate", HealthSettings())
    one: Any = outside
    given = {"broker": outside, "append_clocks": outside.clocks.append, "begin": {}, **options}
    given["commit_offsets"] = outside.commit
    return QueryWatch(one, one, health=health, otlp=("otlp",), **given)


def test_the_group_has_what_all_shards_have_published() -> None:
    """Each shard reads every partition, so the lowest position counts that the combiner has. Before, there is none."""
    outside = Outside(loops=3)
    outside.publish(0, 9)
    outside.publish(1, 9)
    watched = watch(outside)
    watched.follow(last=True)
    outside.publish(2, 8, 7)
    watched.follow(last=True)
    assert outside.committed == [{Place("metrics", 0): 7}]


def test_offsets_are_committed_when_they_move() -> None:
    """A commit that failed is repeated. The first one sets all, whatever an earlier table has left."""
    outside = Outside()
    watched = watch(outside)
    for end, outside.refuses in ((0, False), (0, False), (1, True), (1, False)):
        outside.publish(0, end)
        watched.follow(last=True)
    assert outside.committed == [{Place("metrics", 0): 0}, {Place("metrics", 0): 1}]


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


def test_a_long_restore_leaves_the_aggregator_alive_and_not_ready() -> None:
    """Its claim is published, and nothing else for an hour. A restart would begin the same again."""
    outside, clock = Outside(), ManualClock()
    health = Health("aggregate", HealthSettings(), clock=clock)
    watched = watch(outside, health)
    watched.reset()
    outside.publish(0, 5, restoring=True)
    watched.follow(last=True)
    clock.advance(3600)
    assert health.status.unhealthy_reason() is None
    assert health.status.unready_reason() is not None


def test_a_catch_up_is_done_at_its_ends() -> None:
    """Its ends are those of the partitions at the start."""
    outside = Outside()
    watched = watch(outside, ends={"metrics": {"0": 8}})
    done = []
    for end in (7, 8):
        outside.publish(0, end)
        watched.follow(last=True)
        done.append(watched.is_done)
    assert done == [False, True]


def test_a_catch_up_is_not_done_before_all_loops_have_begun() -> None:
    """What an earlier driver has published may be of a topic that was deleted and created again: a loop looks first."""
    outside = Outside()
    watched = watch(outside, ends={"metrics": {"0": 8}})
    done = []
    for generation, restoring in ((1, False), (2, True), (2, False)):
        outside.publish(0, 9, generation=generation, restoring=restoring)
        watched.follow(last=True)
        done.append(watched.is_done)
    assert done == [False, False, True]


def test_a_partition_that_one_shard_has_not_begun_to_read_is_not_done() -> None:
    """It was added since the last run. The shard that starts first has read it, and the sums lack the others' part."""
    outside = Outside(loops=3)
    watched = watch(outside, ends={"metrics": {"0": 8, "1": 3}})
    outside.publish(0, 8)
    outside.publish(1, 8)
    outside.publish(2, 8, 8)
    found = outside.positions[2]
    done = []
    for shard in ("0", "1"):
        found.shards[shard]["metrics"]["1"] = 3
        watched.follow(last=True)
        done.append(watched.is_done)
    assert done == [False, True]
    assert outside.committed == [{Place("metrics", 0): 8}, {Place("metrics", 0): 8, Place("metrics", 1): 3}]


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


def test_the_ledger_has_a_row_for_each_epoch_that_moved() -> None:
    """Rows follow each other without a gap, also if the broker does not answer for a while.

    An epoch that did not reach the published positions has no row.
    """
    outside = Outside()
    watched = watch(outside)
    for batch, end in enumerate((5, 5, 0, 8)):
        outside.fails = batch == 0
        watched._note(batch, f"1970-01-01T00:00:0{batch}Z", [row(0, end)])
        watched.follow()
    assert [(one.generation, one.batch, one.ts, one.start, one.end) for one in outside.written] == [
        (2, 0, 0, {}, {"metrics": {"0": 5}}),
        (2, 3, 3000, {"metrics": {"0": 5}}, {"metrics": {"0": 8}}),
    ]


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
