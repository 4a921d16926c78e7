"""Lives: whatever is acknowledged, failed or refused, the sum over lives is what was counted and acknowledged."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallystream.kafka.life import LifeHistory
from tallystream.record import Counter, Histogram, Position, Snapshot
from tallystream.testing import ManualClock
from tallystream.ulid import ulid_ms

if TYPE_CHECKING:
    from tallystream.kafka.life import PendingRecord

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


class Table:
    """What the aggregator keeps, in a few lines: the newest snapshot of each life, refused at the wrong time."""

    def __init__(self) -> None:
        self.taken: dict[str, list[Snapshot]] = {}

    def append(self, snapshot: Snapshot, append_ms: int) -> bool:
        """Take a record, unless it was appended at the wrong time, and tell whether it was taken."""
        reference = snapshot.prev if snapshot.prev is not None else ulid_ms(snapshot.life)
        timely = append_ms - reference < DAY_MS and ulid_ms(snapshot.life) - append_ms <= DAY_MS
        if timely:
            self.taken.setdefault(snapshot.life, []).append(snapshot)
        return timely

    @property
    def count(self) -> int:
        """The sum over all lives; who is missing from a life's newest record keeps its value (rule 9)."""
        values = [
            {metric.name: metric.count for s in sorted(taken, key=lambda s: s.seq) for metric in s.metrics}  # type: ignore[union-attr]
            for taken in self.taken.values()
        ]
        return sum(sum(each.values()) for each in values)


class Run:
    """A process that counts and reports, a broker whose clock jumps, and the table behind it."""

    def __init__(self) -> None:
        self.clock, self.table, self.counts = ManualClock(), Table(), {"c": 0, "x": 0}
        self.shown = True  # whether the source of x tells it
        self.ahead_ms = 0  # the broker's clock
        self.lives = LifeHistory("app")
        self.in_flight: PendingRecord | None = None
        self.appended_at: int | None = None

    @property
    def counted(self) -> int:
        """Everything counted."""
        return sum(self.counts.values())

    def count(self, n: int) -> None:
        """Count in the application."""
        self.counts["c"] += n

    def count_other(self, n: int) -> None:
        """Count what is not always told."""
        self.counts["x"] += n

    def hand_over(self, *, final: bool) -> None:
        """Make a report, if none is under way."""
        metrics = [
            Counter(name=n, count=count) for n, count in self.counts.items() if count and (self.shown or n != "x")
        ]
        for pending in self.lives.prepare(list(metrics), self.clock.now(), final=final):
            self.in_flight, self.appended_at = pending, None

    def arrive(self) -> None:
        """Let the broker append what is under way; the acknowledgement is not out yet."""
        if self.in_flight is not None and self.appended_at is None:
            self.appended_at = self.clock.now().wall_ms + self.ahead_ms
            self.table.append(self.in_flight.snapshot, self.appended_at)

    def acknowledge(self) -> None:
        """Let it arrive, if it has not, and acknowledge it."""
        if self.in_flight is not None:
            self.arrive()
            assert self.appended_at is not None
            pending, self.in_flight = self.in_flight, None
            self.lives.acknowledged(pending, self.appended_at, self.clock.now())

    def fail(self) -> None:
        """Report it as failed, whether it arrived or not."""
        if self.in_flight is not None:
            pending, self.in_flight = self.in_flight, None
            self.lives.failed(pending)

    def settle_down(self) -> None:
        """Have a calm end: everything is told, what is under way is acknowledged, and one more report is."""
        self.shown = True
        for _ in range(3):
            self.acknowledge()
            self.hand_over(final=False)
            self.acknowledge()


STEP = st.one_of(
    st.tuples(st.sampled_from(["count", "count_other"]), st.integers(1, 9)),
    st.tuples(st.just("show"), st.booleans()),
    st.tuples(st.just("hand_over"), st.booleans()),
    st.tuples(st.just("arrive"), st.none()),
    st.tuples(st.just("acknowledge"), st.none()),
    st.tuples(st.just("advance"), st.sampled_from([1, 3600, 6 * 3600, 13 * 3600, 23.5 * 3600, 25 * 3600])),
    st.tuples(st.just("sleep"), st.sampled_from([3600, 13 * 3600, 25 * 3600])),
    st.tuples(st.just("jump"), st.integers(-72, 72)),
)
STEPS = st.lists(STEP, max_size=40)
FAILING = st.lists(st.one_of(STEP, st.tuples(st.just("fail"), st.none())), max_size=40)


def play(run: Run, steps: list[tuple[str, object]]) -> None:
    for step, argument in steps:
        if step in ("count", "count_other"):
            getattr(run, step)(argument)
        elif step == "show":
            run.shown = bool(argument)
        elif step == "hand_over":
            run.hand_over(final=bool(argument))
        elif step == "jump":
            run.ahead_ms = int(str(argument)) * HOUR_MS
        elif step in ("advance", "sleep"):
            getattr(run.clock, step)(argument)
        else:
            getattr(run, step)()
        assert run.table.count <= run.counted


MENDED_FAILURE: list[tuple[str, object]] = [
    ("count", 3),
    ("hand_over", False),
    ("fail", None),
    ("count", 4),
    ("hand_over", False),
    ("acknowledge", None),
    ("advance", 23.5 * 3600),
]
"""A record of unknown fate, and an acknowledged one after it: nothing is in doubt any more when the life ends."""


MISSING_AFTER_A_FAILURE: list[tuple[str, object]] = [
    ("count", 1),
    ("count_other", 5),
    ("hand_over", False),
    ("arrive", None),
    ("fail", None),
    ("show", False),
    ("hand_over", False),
    ("acknowledge", None),
    ("hand_over", True),
    ("acknowledge", None),
]
"""A record of unknown fate arrived, with a metric that is missing from all acknowledged ones of its life."""


@settings(max_examples=300)
@given(STEPS)
def test_the_sum_over_lives_is_exact(steps: list[tuple[str, object]]) -> None:
    """Any schedule of acknowledged and refused records, of jumping clocks and of new lives sums exactly."""
    run = Run()
    play(run, steps)
    run.settle_down()
    assert run.table.count == run.counted


@settings(max_examples=300)
@example(MENDED_FAILURE)
@example(MISSING_AFTER_A_FAILURE)
@given(FAILING)
def test_a_failed_delivery_makes_nothing_count_twice(steps: list[tuple[str, object]]) -> None:
    """Where deliveries fail, and may have arrived, the sum never exceeds what was counted."""
    run = Run()
    play(run, steps)
    run.settle_down()
    assert run.table.count <= run.counted


def test_seq_prev_and_life_of_a_quiet_run() -> None:
    """A life counts seq from 1, states the append time of its last acknowledged record, and keeps its name."""
    run = Run()
    snapshots = []
    for _ in range(3):
        run.hand_over(final=False)
        assert run.in_flight is not None
        snapshots.append(run.in_flight.snapshot)
        run.acknowledge()
        run.clock.advance(1)
    start = 1_700_000_000_000
    assert [s.seq for s in snapshots] == [1, 2, 3]
    assert [s.prev for s in snapshots] == [None, start, start + 1000]
    assert len({s.life for s in snapshots}) == 1
    assert ulid_ms(snapshots[0].life) == start


def test_one_record_is_under_way_at_most() -> None:
    """While a record's fate is open no other is prepared: the next one will have the newest values anyway."""
    lives, clock = LifeHistory("app"), ManualClock()
    assert len(lives.prepare([], clock.now())) == 1
    assert lives.prepare([], clock.now()) == []


def test_an_acknowledged_final_ends_the_life_and_an_unacknowledged_one_does_not() -> None:
    """After an acknowledged final comes a new life; after one of unknown fate the same life goes on."""
    run = Run()
    run.hand_over(final=True)
    assert run.in_flight is not None
    first = run.in_flight.snapshot.life
    run.fail()
    run.hand_over(final=True)
    assert run.in_flight.snapshot.life == first
    run.acknowledge()
    run.hand_over(final=False)
    assert run.in_flight is not None
    assert run.in_flight.snapshot.life != first


@pytest.mark.parametrize("pass_time", ["advance", "sleep"])
@pytest.mark.parametrize(("hours", "same"), [(13, True), (23.9, True), (24, False), (50, False)])
def test_a_life_ends_when_a_record_of_it_is_refused(pass_time: str, hours: float, *, same: bool) -> None:
    """A record appended 24 h after its `prev` ends its life, and none before; the next one has all that it had."""
    run = Run()
    run.count(110)
    run.hand_over(final=False)
    run.acknowledge()
    getattr(run.clock, pass_time)(hours * 3600)
    run.count(50)
    run.hand_over(final=False)
    assert run.in_flight is not None
    life = run.in_flight.snapshot.life
    run.acknowledge()
    assert run.lives.refused is not same
    run.hand_over(final=False)
    assert run.in_flight is not None
    assert (run.in_flight.snapshot.life == life) is same
    run.acknowledge()
    assert run.table.count == 160


@pytest.mark.parametrize("ahead", [25, 72])
def test_a_record_that_the_table_refused_is_never_taken_as_delivered(ahead: int) -> None:
    """The broker's clock was ahead for one record: it is counted by the next life, and by that alone."""
    run = Run()
    run.count(10)
    run.hand_over(final=False)
    run.acknowledge()
    run.count(5)
    run.hand_over(final=False)
    run.clock.advance(ahead * 3600)  # under way for so long, so that it may have been tried before
    run.acknowledge()
    assert run.lives.refused
    run.hand_over(final=False)
    run.acknowledge()
    assert run.table.count == 15


def test_a_failed_delivery_is_decided_by_a_later_acknowledgement_of_its_life() -> None:
    """It may have arrived or not: an acknowledged record of its life replaces it, however long after the failure."""
    run = Run()
    run.hand_over(final=False)
    run.acknowledge()
    run.count(3)
    run.hand_over(final=False)
    assert run.in_flight is not None
    life = run.in_flight.snapshot.life
    run.fail()
    run.clock.advance(23 * 3600)
    run.hand_over(final=False)
    assert run.in_flight is not None
    assert run.in_flight.snapshot.life == life
    run.acknowledge()
    assert run.table.count == 3


@pytest.mark.parametrize("arrived", [True, False])
def test_a_failed_delivery_is_taken_as_delivered_when_its_life_ends(*, arrived: bool) -> None:
    """Its successor counts on from it: 160 where it arrived, and what it had counted is missing where it did not."""
    run = Run()
    run.count(100)
    run.hand_over(final=False)
    run.acknowledge()
    run.count(10)
    run.hand_over(final=False)
    if arrived:
        run.arrive()
    run.fail()
    run.clock.advance(30 * 3600)
    run.count(50)
    run.hand_over(final=False)
    run.acknowledge()
    assert run.lives.refused
    run.hand_over(final=False)
    run.acknowledge()
    assert run.table.count == (160 if arrived else 150)


def test_a_metric_that_only_a_failed_delivery_has_is_taken_as_delivered() -> None:
    """The delivery arrived, and no acknowledged record of its life has the metric: the next life does not count it."""
    run = Run()
    play(run, MISSING_AFTER_A_FAILURE)
    run.settle_down()
    assert run.table.count == run.counted


@pytest.mark.parametrize("wall_ms", [HOUR_MS, 1_900_000_000_000])
def test_a_clock_that_is_days_off_costs_one_life_only(wall_ms: int) -> None:
    """A first record that the table refuses, its ULID being old or far ahead, is counted in the next life."""
    clock, broker_ms = ManualClock(wall_ms=wall_ms), 1_700_000_000_000
    lives = LifeHistory("app")
    [first] = lives.prepare([Counter(name="c", count=3)], clock.now())
    lives.acknowledged(first, broker_ms, clock.now())
    assert not lives.has(first)
    assert lives.refused
    [second] = lives.prepare([Counter(name="c", count=3)], clock.now())
    assert second.snapshot.metrics == [Counter(name="c", count=3)]
    assert ulid_ms(second.snapshot.life) == broker_ms
    lives.acknowledged(second, broker_ms + 5, clock.now())
    assert lives.has(second)


def test_later_lives_publish_what_came_after() -> None:
    """Counts and sums of a later life are those since the last one; positions and extremes stay as they are."""
    clock = ManualClock()
    lives = LifeHistory("app")
    position = Position(name="p", start=0, position=7)
    [first] = lives.prepare(
        [Histogram(name="h", count=2, sum=5.0, min=1.0, max=4.0), position], clock.now(), final=True
    )
    lives.acknowledged(first, 1_700_000_000_000, clock.now())
    [second] = lives.prepare([Histogram(name="h", count=2, sum=5.0, min=1.0, max=4.0), position], clock.now())
    assert second.snapshot.metrics == [Histogram(name="h", count=0), position]
    lives.failed(second, never_sent=True)
    [third] = lives.prepare([Histogram(name="h", count=3, sum=7.0, min=1.0, max=4.0), position], clock.now())
    assert third.snapshot.metrics == [Histogram(name="h", count=1, sum=2.0, min=1.0, max=4.0), position]


@pytest.mark.parametrize("between", [["a"], ["b"], ["b", "a"], ["a", "b", "c"], []], ids="".join)
def test_who_is_missing_for_a_while_is_not_counted_twice(between: list[str]) -> None:
    """A metric that a source does not tell for some records keeps what was acknowledged, whoever comes and goes."""
    clock, lives, counts = ManualClock(), LifeHistory("app"), Counts[str]()

    def publish(names: list[str], *, final: bool = False) -> dict[str, int]:
        for name in names:
            counts[name] += 10
        (pending,) = lives.prepare([Counter(name=n, count=counts[n]) for n in names], clock.now(), final=final)
        lives.acknowledged(pending, clock.now().wall_ms, clock.now())
        return {metric.name: metric.count for metric in pending.snapshot.metrics if isinstance(metric, Counter)}

    for names in (["a", "b"], ["a", "b"], between, between):
        publish(names)
    publish(between, final=True)
    assert publish(["c", "b", "a"]) == {"a": 10, "b": 10, "c": 10}
