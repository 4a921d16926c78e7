"""A snapshot is of one moment, whatever comes between that and its making."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystream.reporter import (
    ExponentiallyDecaying,
    MetricRegistry,
    Sampling,
    SlidingTimeWindow,
    record,
)
from tallystream.reporter.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.reporter.testing import ManualClock


def test_a_snapshot_is_of_the_moment_of_its_capture(registry: MetricRegistry) -> None:
    """What is updated between capture and the costly part is not in it, and the next reading has it."""
    histogram, timer = registry.histogram("h"), registry.timer("t")
    histogram.update(1)
    timer.update(1)
    held, held_timer = histogram.capture(), timer.capture()
    histogram.update(2)
    timer.update(2)
    early, early_timer = histogram.captured(held), timer.captured(held_timer)
    assert isinstance(early, record.Histogram)
    assert isinstance(early_timer, record.Timer)
    for found in (early, early_timer):
        assert (found.count, found.sum, found.max, found.p999) == (1, 1, 1, 1)
        assert Sketch.decode(found.sketch or "").count == 1
    assert histogram.read().p999 == timer.read().p999 == 2
    assert histogram.read() == histogram.read()


@pytest.mark.parametrize("sampling", [ExponentiallyDecaying(), SlidingTimeWindow(60)], ids=repr)
@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_whoever_comes_between_a_capture_and_its_end_changes_nothing_of_it(
    clock: ManualClock, sampling: Sampling, kind: str
) -> None:
    """A full buffer, a reader, another capture, a tick of the rates: each works the captured values in first."""
    metric = getattr(MetricRegistry("app", clock=clock, sampling=sampling), kind)("m")
    between: list[Callable[[], object]] = [
        lambda: [metric.update(1000) for _ in range(600)],
        lambda: metric.count,
        metric.capture,
        metric.view,
        lambda: clock.advance(6) or metric.update(1000),
    ]
    wanted = 0
    for come in between:
        metric.update(1)
        wanted = metric.count
        metric.update(1)
        held = metric.capture()
        metric.update(1000)
        come()
        found = metric.captured(held)
        assert found.count == Sketch.decode(found.sketch).count == wanted + 1
        assert (found.max == 1000) == (wanted > 1)
        assert metric.captured(held) is found
    metric.update(2)
    assert metric.read().count == metric.count == wanted + 4


def test_counters_and_meters_are_of_the_moment_of_their_capture(registry: MetricRegistry, clock: ManualClock) -> None:
    """What is counted, and what ticks, between capture and record is not in it; amounts above one are."""
    counter, meter = registry.counter("c"), registry.meter("m")
    clock.advance(2)
    counter.inc()
    counter.inc(41)
    meter.mark(6)
    held, held_meter = counter.capture(), meter.capture()
    counter.inc()
    counter.inc(7)
    clock.advance(10)
    meter.mark(100)
    meter.get_ready()
    assert counter.captured(held).count == 42
    found = meter.captured(held_meter)
    assert (found.count, found.mean_rate, found.m1_rate) == (6, 3, 0)
    assert (counter.read().count, meter.read().count) == (50, 106)
    assert meter.read().m1_rate > 0


@pytest.mark.parametrize("sampling", [ExponentiallyDecaying(), SlidingTimeWindow(60)], ids=repr)
@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_a_snapshot_without_views_has_what_merges(clock: ManualClock, sampling: Sampling, kind: str) -> None:
    """Count, sum, min, max and sketch are there, nothing of the sample; whoever wants that gets it all the same."""
    registry = MetricRegistry("app", clock=clock, sampling=sampling)
    metric = getattr(registry, kind)("m")
    views = {"mean", "stddev", "p50", "p75", "p95", "p98", "p99", "p999"}
    for value in (1, 3, 2):
        metric.update(value)
        for wanted in (False, True, False, False, True):
            [found] = registry.snapshot(views=wanted)
            assert isinstance(found, record.Histogram)
            assert (found.count, found.sum, found.min, found.max) == (metric.count, *_of(value))
            assert Sketch.decode(found.sketch or "").count == found.count
            assert {name for name in views if getattr(found, name) is not None} == (views if wanted else set())
    assert registry.snapshot() == [metric.read()]


def _of(last: int) -> tuple[int, int, int]:
    taken = [1, 3, 2][: [1, 3, 2].index(last) + 1]
    return sum(taken), min(taken), max(taken)
