"""Lives: what is published in all of them is what was counted."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from tallystream.kafka.life import LifeHistory, PendingRecord
from tallystream.record import Counter, Snapshot, decode
from tallystream.testing import ManualClock
from tallystream.ulid import ulid_ms

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


class Table:
    """A model of the table: the snapshots of each life, except those that are not timely."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[Snapshot]] = {}

    def append(self, snapshot: Snapshot, append_ms: int) -> bool:
        """Add a record if it is timely; return whether it is."""
        reference = snapshot.prev if snapshot.prev is not None else ulid_ms(snapshot.life)
        timely = append_ms - reference < DAY_MS and ulid_ms(snapshot.life) - append_ms <= DAY_MS
        if timely:
            self.accepted.setdefault(snapshot.life, []).append(snapshot)
        return timely

    @property
    def count(self) -> int:
        """The sum over all lives; a metric that is missing from a life's newest record keeps its value (rule 9)."""
        values = [
            {metric.name: metric.count for s in sorted(accepted, key=lambda s: s.seq) for metric in s.metrics}  # type: ignore[union-attr]
            for accepted in self.accepted.values()
        ]
        return sum(sum(each.values()) for each in values)


class Run:
    """A process that counts and reports, a broker whose clock jumps, and a table."""

    def __init__(self) -> None:
        self.clock, self.table, self.counts = ManualClock(), Table(), {"c": 0, "x": 0}
        self.shown = True  # whether x is in the snapshots
        self.ahead_ms = 0  # the broker's clock
        self.lives = LifeHistory("app")
        self.in_flight: PendingRecord | None = None
        self.appended_at: int | None = None

    @property
    def counted(self) -> int:
        """The sum of all counters of the process."""
        return sum(self.counts.values())

    def count(self, n: int) -> None:
        """Increment the counter that is always reported."""
        self.counts["c"] += n

    def count_other(self, n: int) -> None:
        """Increment the counter that is not always reported."""
        self.counts["x"] += n

    def send(self, *, final: bool) -> None:
        """Make a report if no record is in flight."""
        metrics = [
            Counter(name=n, count=count) for n, count in self.counts.items() if count and (self.shown or n != "x")
        ]
        for pending in self.lives.prepare(list(metrics), self.clock.wall_ms(), final=final):
            self.in_flight, self.appended_at = pending, None

    def arrive(self) -> None:
        """Append the record in flight to the topic, without an acknowledgement yet."""
        if self.in_flight is not None and self.appended_at is None:
            self.appended_at = self.clock.wall_ms() + self.ahead_ms
            self.table.append(self.in_flight.snapshot, self.appended_at)

    def acknowledge(self) -> None:
        """Append the record in flight, if it is not appended yet, and acknowledge it."""
        if self.in_flight is not None:
            self.arrive()
            assert self.appended_at is not None
            pending, self.in_flight = self.in_flight, None
            self.lives.acknowledged(pending, self.appended_at, self.clock.wall_ms())

    def fail(self) -> None:
        """Fail the delivery, whether the record was appended or not."""
        if self.in_flight is not None:
            pending, self.in_flight = self.in_flight, None
            self.lives.failed(pending)

    def finish(self) -> None:
        """Acknowledge the record in flight and one more report with all metrics."""
        self.shown = True
        for _ in range(3):
            self.acknowledge()
            self.send(final=False)
            self.acknowledge()


STEP = st.one_of(
    st.tuples(st.sampled_from(["count", "count_other"]), st.integers(1, 9)),
    st.tuples(st.just("show"), st.booleans()),
    st.tuples(st.just("send"), st.booleans()),
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
        elif step == "send":
            run.send(final=bool(argument))
        elif step == "jump":
            run.ahead_ms = int(str(argument)) * HOUR_MS
        elif step in ("advance", "sleep"):
            getattr(run.clock, step)(argument)
        else:
            getattr(run, step)()
        assert run.table.count <= run.counted


MENDED_FAILURE: list[tuple[str, object]] = [
    ("count", 3),
    ("send", False),
    ("fail", None),
    ("count", 4),
    ("send", False),
    ("acknowledge", None),
    ("send", True),
    ("acknowledge", None),
]
"""A record that may have arrived, and an acknowledged one after it: when the life ends, all counts are known."""


MISSING_AFTER_A_FAILURE: list[tuple[str, object]] = [
    ("count", 1),
    ("count_other", 5),
    ("send", False),
    ("arrive", None),
    ("fail", None),
    ("show", False),
    ("send", False),
    ("acknowledge", None),
    ("send", True),
    ("acknowledge", None),
]
"""A record that may have arrived did arrive, with a metric that is missing from all acknowledged ones of its life."""


@examples(300)
@given(STEPS)
def test_the_sum_over_lives_is_exact(steps: list[tuple[str, object]]) -> None:
    """Schedules of acknowledged and refused records, clock jumps and new lives are summed exactly."""
    run = Run()
    play(run, steps)
    run.finish()
    assert run.table.count == run.counted


@examples(300)
@example(MENDED_FAILURE)
@example(MISSING_AFTER_A_FAILURE)
@given(FAILING)
def test_a_failed_delivery_is_never_counted_twice(steps: list[tuple[str, object]]) -> None:
    """If deliveries fail, and may have arrived, the sum never exceeds what was counted."""
    run = Run()
    play(run, steps)
    run.finish()
    assert run.table.count <= run.counted


@pytest.mark.parametrize("wall_ms", [HOUR_MS, 1_900_000_000_000])
def test_a_clock_that_is_days_off_costs_one_life(wall_ms: int) -> None:
    """A first record that is refused, since its ULID is old or far ahead, is counted in the next life."""
    clock, broker_ms = ManualClock(wall_ms=wall_ms), 1_700_000_000_000
    lives = LifeHistory("app")
    [first] = lives.prepare([Counter(name="c", count=3)], clock.wall_ms())
    lives.acknowledged(first, broker_ms, clock.wall_ms())
    assert not lives.has(first)
    assert lives.refused
    [second] = lives.prepare([Counter(name="c", count=3)], clock.wall_ms())
    assert second.snapshot.metrics == [Counter(name="c", count=3)]
    assert ulid_ms(second.snapshot.life) == broker_ms
    lives.acknowledged(second, broker_ms + 5, clock.wall_ms())
    assert lives.has(second)
    assert not lives.has(first)


def test_a_life_lasts_as_long_as_its_records_are_timely() -> None:
    """Each record has the append time of the last one that was acknowledged, so 40 days of reports are one life."""
    clock, lives = ManualClock(), LifeHistory("app")
    appended, found = None, set()
    for number in range(1, 43):
        [pending] = lives.prepare([Counter(name="c", count=number)], clock.wall_ms())
        assert (pending.snapshot.prev, pending.snapshot.seq) == (appended, number)
        appended = clock.wall_ms() + 7
        lives.acknowledged(pending, appended, clock.wall_ms())
        found.add(pending.snapshot.life)
        clock.advance(23 * 3600)
    assert len(found) == 1


@pytest.mark.parametrize(("now_ms", "ts"), [(1_700_000_000_000, 1_700_000_000_000), (-5, 0)])
def test_a_record_without_metrics_tells_that_the_instance_lives(now_ms: int, ts: int) -> None:
    """It is the record of part 0, with the time of the process. A clock before 1970 is taken as 1970."""
    lives = LifeHistory("app")
    assert not any([lives.has_begun, lives.in_flight, lives.refused, lives.new_life_due, lives.incomplete])
    [pending] = lives.prepare([], now_ms)
    snapshot = pending.snapshot
    assert (snapshot.app, snapshot.part, snapshot.seq, snapshot.ts, snapshot.every_ms) == ("app", 0, 1, ts, 1000)
    assert (snapshot.prev, snapshot.final, snapshot.metrics) == (None, False, [])
    assert (ulid_ms(snapshot.life), decode(pending.value)) == (ts, snapshot)
    assert not LifeHistory("app").has(pending)
