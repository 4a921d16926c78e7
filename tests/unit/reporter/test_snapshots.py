"""The content of a snapshot, with and without views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystream import ExponentiallyDecaying, MetricRegistry, Sampling, SlidingTimeWindow, record
from tallystream.metrics.sampling import View
from tallystream.metrics.sketch import Sketch

if TYPE_CHECKING:
    from tallystream.testing import ManualClock


def test_a_snapshot_has_what_each_metric_reads(registry: MetricRegistry, clock: ManualClock) -> None:
    """For all types, however they were updated, in the order of names."""
    clock.advance(1)
    for number in range(3):
        registry.counter("c", tags={"n": str(number)}).inc(number)
        registry.updown("u", tags={"n": str(number)}).inc(number)
        registry.gauge("g", tags={"n": str(number)}).set(number)
        registry.gauge("f", lambda: 7, tags={"n": str(number)})
        registry.meter("m", tags={"n": str(number)}).mark(number)
        registry.position("t", number).advance(number, 9)
        for value in range(20 * number):
            registry.histogram("h", tags={"n": str(number)}).update(value)
            registry.timer("s", tags={"n": str(number)}).update(value)
    clock.advance(6)
    registry.counter("c", tags={"n": "0"}).inc()
    found = registry.snapshot()
    assert found == [metric.read() for metric in registry.metrics()]
    assert len(found) == 22


def test_a_custom_sampling_needs_only_the_protocol(clock: ManualClock) -> None:
    """A reservoir with update() and view() is reported like the built-in ones."""

    class Last:
        def __init__(self) -> None:
            self.value = 0.0

        def update(self, values: list[float], now: float) -> None:  # noqa: ARG002
            self.value = values[-1]

        def view(self, now: float) -> View:  # noqa: ARG002
            return View(*[self.value] * len(View._fields))

    class Latest(Sampling):
        def new(self) -> Last:
            return Last()

    registry = MetricRegistry("app", clock=clock, sampling=Latest())
    registry.histogram("h").update(3)
    registry.histogram("h").update(2)
    (found,) = registry.snapshot()
    assert isinstance(found, record.Histogram)
    assert (found.count, found.max, found.p50) == (2, 3, 2)


@pytest.mark.parametrize("sampling", [None, ExponentiallyDecaying(), SlidingTimeWindow(60)], ids=repr)
@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_a_snapshot_without_views_has_the_mergeable_values(
    clock: ManualClock, sampling: Sampling | None, kind: str
) -> None:
    """Count, sum, min, max and sketch, but no view; a later snapshot with views has it."""
    registry = MetricRegistry("app", clock=clock, sampling=sampling)
    metric = getattr(registry, kind)("m")
    views = {"mean", "stddev", "p50", "p75", "p95", "p98", "p99", "p999"}
    for value in (1, 3, 2):
        metric.update(value)
        for views_requested in (False, True, False, False, True):
            [found] = registry.snapshot(views=views_requested)
            assert isinstance(found, record.Histogram)
            assert (found.count, found.sum, found.min, found.max) == (metric.count, *_of(value))
            assert Sketch.decode(found.sketch or "").count == found.count
            assert {name for name in views if getattr(found, name) is not None} == (views if views_requested else set())
    assert registry.snapshot() == [metric.read()]


def _of(last: int) -> tuple[int, int, int]:
    values = [1, 3, 2][: [1, 3, 2].index(last) + 1]
    return sum(values), min(values), max(values)
