"""Metrics of every type, through lives of the reporter, forks of the process, and resets of a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry, record
from tallystream.bridges.base import Reading
from tallystream.kafka.life import LifeHistory
from tallystream.metric_types import HIGHEST, LOWEST, NAMES, TOTAL, TYPES
from tallystream.testing import ManualClock


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


@pytest.mark.parametrize("type_", sorted(TYPES.keys() - {"gauge", "updown", "buckets"}))
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
