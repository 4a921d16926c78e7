"""Metrics of every type, through lives of the reporter, forks of the process, and resets of a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry, record
from tallystream.bridges.base import Reading
from tallystream.bridges.sources import ResetAdjuster
from tallystream.kafka.life import LifeHistory
from tallystream.metric_types import HIGHEST, LOWEST, NAMES, TOTAL, TYPES
from tallystream.record import Counter, Gauge, UpDown
from tallystream.testing import ManualClock, assert_count, find

REPORTED = TYPES.keys() - {"buckets"}
"""The types that an application can report. Explicit buckets come from OpenTelemetry."""


class Library:
    """A source with one metric, whose values begin again at a reset."""

    kind = "library"

    def __init__(self, type_: str, clock: ManualClock) -> None:
        self._type, self._clock = type_, clock
        self.reset(0)

    def reset(self, offset: int) -> None:
        """Forget all values; the next offset is another one."""
        self.values: list[int] = []
        self.offset, self.first = offset, offset
        self._began = self._clock.wall_ms() / 1000

    def count(self, value: int) -> None:
        """Add a value, and so many offsets."""
        self.values.append(value)
        self.offset += value

    def fields(self) -> dict[str, Any]:
        """Return the current fields, also those that the type does not have."""
        return {
            "count": len(self.values),
            "sum": sum(self.values) / 4,
            "value": self.offset,
            "min": min(self.values, default=None),
            "max": max(self.values, default=None),
            "start": self.first,
            "position": self.offset,
        }

    def read(self) -> Iterator[Reading]:
        """Return the metric."""
        fields = {name: value for name, value in self.fields().items() if name in NAMES[self._type]}
        yield Reading(record.CLASSES[self._type](name="m", **fields), self._began)


class Process:
    """A process that reports the library, and what it has published in each of its lives."""

    def __init__(self, registry: MetricRegistry, clock: ManualClock) -> None:
        self._registry, self._clock = registry, clock
        self._history = LifeHistory("app")
        self.published: dict[str, record.Metric] = {}

    def report(self, *, final: bool = False) -> None:
        """Report, and receive the acknowledgement. After the final report a new life begins."""
        now_ms = self._clock.wall_ms()
        for pending in self._history.prepare(self._registry.snapshot(), now_ms, final=final):
            record.decode(pending.value)  # raises if a field is out of its bounds
            self._history.acknowledged(pending, now_ms, now_ms)
            for metric in pending.snapshot.metrics:
                if metric.name == "m":
                    self.published[pending.snapshot.life] = metric

    def total(self, field: str, adds: str) -> float | None:
        """Return what all lives together have published of a field."""
        values = [getattr(metric, field) for metric in self.published.values()]
        known = [value for value in values if value is not None]
        if adds == TOTAL:
            return sum(known)
        return (min if adds == LOWEST else max)(known, default=None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("count"), st.integers(1, 9)),
        st.tuples(st.just("reset"), st.integers(0, 40)),
        st.tuples(st.sampled_from(["life", "fork"]), st.just(0)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("type_", sorted(REPORTED - {"gauge", "updown"}))
@given(steps=STEPS)
def test_what_lives_publish_together_is_what_the_source_counted(type_: str, steps: list[tuple[str, int]]) -> None:
    """In any order, totals have every value once, and extremes are of all values; a child has none of its parent's."""
    clock = ManualClock()
    registry, library = MetricRegistry("app", clock=clock), Library(type_, clock)
    registry.add_source(library)
    process = Process(registry, clock)
    process.report()
    values, starts, ends, parents_end = list[int](), [0], [0], 0
    for step, number in steps:
        clock.advance(1)
        if step == "count":
            library.count(number)
            values.append(number)
        elif step == "reset":
            library.reset(number)
            starts.append(number)
        elif step == "life":
            process.report(final=True)
        else:
            registry.reset_after_fork()
            process = Process(registry, clock)
            parents_end = library.offset
            values, starts, ends = [], [], [parents_end]
        ends.append(library.offset)
        process.report()
    forked = any(step == "fork" for step, _ in steps)
    expected = {
        "count": len(values),
        "sum": sum(values) / 4,
        "min": None if forked else min(values, default=None),
        "max": None if forked else max(values, default=None),
        "start": parents_end if forked else min(starts),
        "position": max(ends),
    }
    for field, adds in TYPES[type_]:
        if adds in (TOTAL, LOWEST, HIGHEST):
            assert process.total(field, adds) == expected[field], field


def record_value(registry: MetricRegistry, type_: str, value: int, offset: int) -> None:
    """Record a value in the registry's own metric of a type; a position advances from the offset by the value."""
    if type_ == "position":
        registry.position("t", 0, name="m").advance(offset, offset + value)
    else:
        metric = getattr(registry, type_)("m")
        getattr(metric, {"counter": "inc", "meter": "mark"}.get(type_, "update"))(value)


@pytest.mark.parametrize("type_", ["counter", "meter", "histogram", "timer", "position"])
@given(steps=STEPS)
def test_lives_publish_what_the_registrys_own_metrics_counted(type_: str, steps: list[tuple[str, int]]) -> None:
    """In any order of values, new lives and forks, a process publishes each of its values once, and none of others."""
    clock = ManualClock()
    registry = MetricRegistry("app", clock=clock)
    process = Process(registry, clock)
    values, first, offset = list[int](), 0, 0
    for step, number in steps:
        clock.advance(1)
        if step == "count":
            record_value(registry, type_, number, offset)
            values.append(number)
            offset += number
        elif step == "life":
            process.report(final=True)
        elif step == "fork":
            registry.reset_after_fork()
            process = Process(registry, clock)
            values, first = [], offset
        process.report()
    counts_events = type_ in ("counter", "meter")
    expected = {
        "count": sum(values) if counts_events else len(values),
        "sum": sum(values),
        "min": min(values, default=None),
        "max": max(values, default=None),
        "start": first if values else None,
        "position": offset if values else None,
    }
    for field, adds in TYPES[type_]:
        if adds in (TOTAL, LOWEST, HIGHEST):
            assert process.total(field, adds) == expected[field], field


class Once:
    """A source with one reading."""

    kind = "once"

    def __init__(self, *readings: Reading) -> None:
        self._readings = readings

    def read(self) -> Iterator[Reading]:
        """Return the readings."""
        yield from self._readings


@pytest.mark.parametrize("type_", sorted(REPORTED))
def test_every_number_of_another_library_is_reported_as_a_number(registry: MetricRegistry, type_: str) -> None:
    """One value of numpy in any field would prevent all metrics of the process from being reported."""
    fields = [name for name in record.CLASSES[type_].__struct_fields__ if name not in ("name", "tags", "sketch")]
    registry.add_source(Once(Reading(record.CLASSES[type_](name="m", **dict.fromkeys(fields, np.int64(3))))))
    found = find(registry, "m")
    assert [type(getattr(found, name)) for name in fields] == [int] * len(fields)


@pytest.mark.parametrize("type_", sorted(REPORTED))
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1e200])
def test_a_number_that_no_record_can_have_is_left_out(registry: MetricRegistry, type_: str, number: float) -> None:
    """Whichever field has it, the metric is not reported: the table would refuse it, or every sum with it."""
    for index, name in enumerate(NAMES[type_]):
        fields = dict.fromkeys(NAMES[type_], 1) | {name: number}
        if name != "value" and (number != -1e200 or adds_up(type_, name)):
            registry.add_source(Once(Reading(record.CLASSES[type_](name=f"m{index}", **fields))))
            assert find(registry, f"m{index}") is None


def adds_up(type_: str, name: str) -> bool:
    """Return whether a field is a total, or an offset."""
    return dict(TYPES[type_])[name] == TOTAL or type_ == "position"


def test_a_reset_is_detected_by_the_start_time() -> None:
    """A count that began after the last reading was reset, even if it is higher; small differences are ignored."""
    adjuster = ResetAdjuster()
    counts = []
    for now, count, began in [(10, 5, 1.0), (20, 6, 1.001), (30, 7, 25.0), (40, 8, 25.0), (50, 8, None), (60, 1, None)]:
        metric = adjuster.adjust(Reading(Counter(name="c", count=count), began), now)
        assert isinstance(metric, Counter)
        counts.append(metric.count)
    assert counts == [5, 6, 13, 14, 14, 15]


@pytest.mark.parametrize("type_", [Gauge, UpDown])
def test_nothing_is_kept_of_a_value_that_is_no_count(type_: type[Gauge | UpDown]) -> None:
    """Its tags may come and go for as long as the process lives, as those of connections."""
    adjuster = ResetAdjuster()
    for number in range(5):
        metric = type_(name="open", tags={"connection": str(number)}, value=number)
        assert adjuster.adjust(Reading(metric, None), 10) == metric
    assert not adjuster._streams


class ResetMeanwhile:
    """A source whose counter is reset during the first reading, after its value was read."""

    kind = "library"

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._count, self._began = 100, clock.wall_ms() / 1000

    def read(self) -> Iterator[Reading]:
        """Return the counter. The rest of the reading takes a second."""
        yield Reading(Counter(name="c", count=self._count), self._began)
        self._clock.advance(1)
        if self._count == 100:
            self._count, self._began = 150, self._clock.wall_ms() / 1000
        self._clock.advance(1)


def test_a_reset_during_a_reading_is_detected() -> None:
    """The values before and after it are added, even if the new value is higher."""
    clock = ManualClock()
    registry = MetricRegistry("app", clock=clock)
    clock.advance(60)
    registry.add_source(ResetMeanwhile(clock))
    assert_count(registry, "c", 100)
    assert_count(registry, "c", 250)


class OneCounter:
    """A source with one counter, whose values the test sets."""

    kind = "library"

    def __init__(self, count: int, began: float) -> None:
        self.count, self.began = count, began

    def read(self) -> Iterator[Reading]:
        """Return the counter."""
        yield Reading(Counter(name="c", count=self.count), self.began)


@pytest.mark.parametrize(("began", "expected"), [(0.001, 3), (61.0, 8)])
def test_a_child_detects_only_resets_after_the_fork(began: float, expected: int) -> None:
    """A start time that is computed again, with a small difference, does not repeat the parent's counts."""
    clock = ManualClock()
    registry, started = MetricRegistry("app", clock=clock), clock.wall_ms() / 1000
    library = OneCounter(5, started)
    registry.add_source(library)
    clock.advance(60)
    registry.reset_after_fork()
    library.count, library.began = 8, started + began
    clock.advance(60)
    assert_count(registry, "c", expected)
    assert_count(registry, "c", expected)
