"""Lives: whatever is delivered, lost, repeated or late, the sum over lives is what was counted."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallystream.reporter._life import CannotTellError, Doubt
from tallystream.reporter.lives import HOUR_MS, RETIRE_MS, Lives
from tallystream.reporter.record import Counter, Histogram, Position, Snapshot
from tallystream.reporter.testing import ManualClock
from tallystream.reporter.ulid import ulid_ms

if TYPE_CHECKING:
    from tallystream.reporter._life import Outgoing


class Table:
    """What the aggregator keeps, in a few lines: the newest snapshot of each life, refused at the wrong time."""

    def __init__(self) -> None:
        self.taken: dict[str, list[Snapshot]] = {}

    def append(self, snapshot: Snapshot, append_ms: int) -> None:
        """Take a record; each of a life is kept, so that a test can ask for any of them."""
        reference = snapshot.prev if snapshot.prev is not None else ulid_ms(snapshot.life)
        if append_ms - reference < RETIRE_MS and ulid_ms(snapshot.life) - append_ms <= RETIRE_MS:
            self.taken.setdefault(snapshot.life, []).append(snapshot)

    def newest(self, doubt: Doubt) -> Snapshot | None:
        """Answer a doubt as somebody who reads the topic would."""
        found = [s for s in self.taken.get(doubt.life, []) if s.seq > doubt.acknowledged_seq]
        return max(found, key=lambda s: s.seq, default=None)

    @property
    def count(self) -> int:
        """The sum over all lives; who is missing from a life's newest record keeps its value (rule 9)."""
        values = [
            {metric.name: metric.count for s in sorted(taken, key=lambda s: s.seq) for metric in s.metrics}  # type: ignore[union-attr]
            for taken in self.taken.values()
        ]
        return sum(sum(each.values()) for each in values)


class Run:
    """A process that counts and reports, a broker that is moody, and the table behind it."""

    def __init__(self, *, can_read: bool) -> None:
        self.clock, self.table, self.counts = ManualClock(), Table(), {"c": 0, "x": 0}
        self.shown = True  # whether the source of x tells it
        self.lives = Lives("app", 1000, self.table.newest if can_read else None)
        self.under_way: Outgoing | None = None
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
        for outgoing in self.lives.prepare(list(metrics), self.clock.now(), final=final):
            self.under_way, self.appended_at = outgoing, None

    def arrive(self) -> None:
        """Let the broker append what is under way; the acknowledgement is not out yet."""
        if self.under_way is not None and self.appended_at is None:
            self.appended_at = self.clock.now().wall_ms
            self.table.append(self.under_way.snapshot, self.appended_at)

    def acknowledge(self, *, forgotten: bool = False) -> None:
        """Let it arrive, if it has not, and acknowledge it; a broker that forgot the producer appends a retry again."""
        if self.under_way is not None:
            if forgotten and self.appended_at is not None:
                self.appended_at = self.clock.now().wall_ms
                self.table.append(self.under_way.snapshot, self.appended_at)
            self.arrive()
            assert self.appended_at is not None
            outgoing, self.under_way = self.under_way, None
            self.lives.acknowledged(outgoing, self.appended_at, self.clock.now())

    def fail(self) -> None:
        """Report it as failed, whether it arrived or not."""
        if self.under_way is not None:
            outgoing, self.under_way = self.under_way, None
            self.lives.failed(outgoing)

    def settle_down(self) -> None:
        """Have a calm end: everything is told, what is under way is acknowledged, and one more report is."""
        self.shown = True
        for _ in range(3):
            self.acknowledge()
            self.hand_over(final=False)
            self.acknowledge()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["count", "count_other"]), st.integers(1, 9)),
        st.tuples(st.just("show"), st.booleans()),
        st.tuples(st.just("hand_over"), st.booleans()),
        st.tuples(st.just("arrive"), st.none()),
        st.tuples(st.just("acknowledge"), st.booleans()),
        st.tuples(st.just("fail"), st.none()),
        st.tuples(st.just("advance"), st.sampled_from([1, 3600, 6 * 3600, 13 * 3600, 23.5 * 3600, 25 * 3600])),
        st.tuples(st.just("sleep"), st.sampled_from([3600, 13 * 3600, 25 * 3600])),
    ),
    max_size=40,
)


def play(run: Run, steps: list[tuple[str, object]]) -> None:
    for step, argument in steps:
        if step in ("count", "count_other"):
            getattr(run, step)(argument)
        elif step == "show":
            run.shown = bool(argument)
        elif step == "hand_over":
            run.hand_over(final=bool(argument))
        elif step == "acknowledge":
            run.acknowledge(forgotten=bool(argument))
        elif step in ("advance", "sleep"):
            getattr(run.clock, step)(argument)
        else:
            getattr(run, step)()
        assert run.table.count <= run.counted


LOST_ACKNOWLEDGEMENT: list[tuple[str, object]] = [
    ("count", 3),
    ("hand_over", False),
    ("arrive", None),
    ("sleep", 25 * 3600),
    ("acknowledge", True),
]
"""The broker appended the record, was away for a day, forgot the producer, and appended the retry: too late."""

MENDED_FAILURE: list[tuple[str, object]] = [
    ("count", 3),
    ("hand_over", False),
    ("fail", None),
    ("count", 4),
    ("hand_over", False),
    ("acknowledge", False),
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
    ("acknowledge", False),
    ("hand_over", True),
    ("acknowledge", False),
]
"""A record of unknown fate arrived, with a metric that is missing from all acknowledged ones of its life."""


@settings(max_examples=300)
@example(LOST_ACKNOWLEDGEMENT)
@example(MISSING_AFTER_A_FAILURE)
@given(STEPS)
def test_the_sum_over_lives_is_exact(steps: list[tuple[str, object]]) -> None:
    """Any schedule of acknowledged, failed, lost, doubly appended and late records, and of new lives, sums exactly."""
    run = Run(can_read=True)
    play(run, steps)
    run.settle_down()
    assert run.table.count == run.counted


@settings(max_examples=300)
@example(LOST_ACKNOWLEDGEMENT)
@example(MENDED_FAILURE)
@example(MISSING_AFTER_A_FAILURE)
@given(STEPS)
def test_where_nobody_can_tell_nothing_is_counted_twice(steps: list[tuple[str, object]]) -> None:
    """Without a way to settle a doubt the sum never exceeds what was counted."""
    run = Run(can_read=False)
    play(run, steps)
    run.settle_down()
    assert run.table.count <= run.counted


def test_seq_prev_and_life_of_a_quiet_run() -> None:
    """A life counts seq from 1, states the append time of its last acknowledged record, and keeps its name."""
    run = Run(can_read=True)
    snapshots = []
    for _ in range(3):
        run.hand_over(final=False)
        assert run.under_way is not None
        snapshots.append(run.under_way.snapshot)
        run.acknowledge()
        run.clock.advance(1)
    start = 1_700_000_000_000
    assert [s.seq for s in snapshots] == [1, 2, 3]
    assert [s.prev for s in snapshots] == [None, start, start + 1000]
    assert len({s.life for s in snapshots}) == 1
    assert ulid_ms(snapshots[0].life) == start


def test_one_record_is_under_way_at_most() -> None:
    """While a record's fate is open no other is prepared: the next one will have the newest values anyway."""
    lives, clock = Lives("app", 1000), ManualClock()
    assert len(lives.prepare([], clock.now())) == 1
    assert lives.prepare([], clock.now()) == []


def test_an_acknowledged_final_ends_the_life_and_an_unacknowledged_one_does_not() -> None:
    """After an acknowledged final comes a new life; after one of unknown fate the same life goes on."""
    run = Run(can_read=True)
    run.hand_over(final=True)
    assert run.under_way is not None
    first = run.under_way.snapshot.life
    run.fail()
    run.hand_over(final=True)
    assert run.under_way.snapshot.life == first
    run.acknowledge()
    assert run.lives.closed
    run.hand_over(final=False)
    assert run.under_way is not None
    assert run.under_way.snapshot.life != first


@pytest.mark.parametrize("pass_time", ["advance", "sleep"])
def test_twelve_silent_hours_end_a_life(pass_time: str) -> None:
    """Nothing acknowledged for 12 h, awake or asleep: the next record is of a new life and counts on."""
    run = Run(can_read=True)
    run.count(5)
    run.hand_over(final=False)
    assert run.under_way is not None
    first = run.under_way.snapshot.life
    run.acknowledge()
    getattr(run.clock, pass_time)(12 * 3600 + 1)
    run.count(2)
    run.hand_over(final=False)
    assert run.under_way is not None
    assert run.under_way.snapshot.life != first
    assert run.under_way.snapshot.metrics == [Counter(name="c", count=2)]


def test_a_doubtful_life_is_kept_while_the_table_takes_its_records() -> None:
    """Between 12 and 23 h a life with a record of unknown fate goes on: its next acknowledgement ends the doubt."""
    run = Run(can_read=True)
    run.hand_over(final=False)
    assert run.under_way is not None
    life = run.under_way.snapshot.life
    run.acknowledge()
    run.hand_over(final=False)
    run.fail()
    run.clock.advance(20 * 3600)
    run.hand_over(final=False)
    assert run.under_way is not None
    assert run.under_way.snapshot.life == life


def test_a_settle_that_fails_is_asked_again() -> None:
    """An answer that can't be had now changes nothing: the same question comes with the next report."""
    answers: list[Exception | None] = [OSError("down"), None]

    def settle(doubt: Doubt) -> None:
        asked.append(doubt)
        answer = answers.pop(0)
        if answer:
            raise answer

    asked: list[Doubt] = []
    clock = ManualClock()
    lives = Lives("app", 1000, settle)
    [outgoing] = lives.prepare([Counter(name="c", count=3)], clock.now())
    lives.failed(outgoing)
    clock.advance(RETIRE_MS / 1000)
    with pytest.raises(OSError, match="down"):
        lives.prepare([Counter(name="c", count=4)], clock.now())
    [again] = lives.prepare([Counter(name="c", count=4)], clock.now())
    assert again.snapshot.metrics == [Counter(name="c", count=4)]
    assert asked[0] == asked[1] == Doubt(outgoing.snapshot.life, 0, 0, 1_700_000_000_000)


def test_cannot_tell_takes_the_record_as_delivered() -> None:
    """Where reading is not possible the doubtful record counts as delivered, so that nothing is counted twice."""

    def settle(doubt: Doubt) -> None:
        raise CannotTellError("not allowed")

    clock = ManualClock()
    lives = Lives("app", 1000, settle)
    [outgoing] = lives.prepare([Counter(name="c", count=3)], clock.now())
    lives.failed(outgoing)
    clock.advance(RETIRE_MS / 1000)
    [again] = lives.prepare([Counter(name="c", count=4)], clock.now())
    assert again.snapshot.metrics == [Counter(name="c", count=1)]


@pytest.mark.parametrize("wall_ms", [HOUR_MS, 1_900_000_000_000])
def test_a_clock_that_is_days_off_costs_one_life_only(wall_ms: int) -> None:
    """A first record that the table refuses, its ULID being old or far ahead, is counted in the next life."""
    clock, broker_ms = ManualClock(wall_ms=wall_ms), 1_700_000_000_000
    lives = Lives("app", 1000)
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
    lives = Lives("app", 1000)
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
    clock, lives, counts = ManualClock(), Lives("app", 1000), Counts[str]()

    def publish(names: list[str], *, final: bool = False) -> dict[str, int]:
        for name in names:
            counts[name] += 10
        (outgoing,) = lives.prepare([Counter(name=n, count=counts[n]) for n in names], clock.now(), final=final)
        lives.acknowledged(outgoing, clock.now().wall_ms, clock.now())
        return {metric.name: metric.count for metric in outgoing.snapshot.metrics if isinstance(metric, Counter)}

    for names in (["a", "b"], ["a", "b"], between, between):
        publish(names)
    publish(between, final=True)
    assert publish(["c", "b", "a"]) == {"a": 10, "b": 10, "c": 10}
