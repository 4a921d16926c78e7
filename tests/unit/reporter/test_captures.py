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
from tallystream.reporter.reservoir import View
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


def test_many_are_captured_as_each_is(registry: MetricRegistry, clock: ManualClock) -> None:
    """The snapshot has what each metric says by itself, of all kinds and however they were counted, type by type."""
    clock.advance(1)
    for number in range(3):
        registry.counter("c", tags={"n": str(number)}).inc(number)
        registry.updown("u", tags={"n": str(number)}).inc(number)
        registry.gauge("g", tags={"n": str(number)}).set(number)
        registry.gauge("f", lambda: 7, tags={"n": str(number)})
        registry.meter("m", tags={"n": str(number)}).mark(number)
        registry.position("t", number).cover(number, 9)
        for value in range(20 * number):
            registry.histogram("h", tags={"n": str(number)}).update(value)
            registry.timer("s", tags={"n": str(number)}).update(value)
    clock.advance(6)
    registry.counter("c", tags={"n": "0"}).inc()
    found = registry.snapshot()
    assert sorted(found, key=repr) == sorted((metric.read() for metric in registry.metrics()), key=repr)
    kinds = [metric.type for metric in found]
    assert len(found) == 22
    assert [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before] == list(
        dict.fromkeys(kinds)
    )


def test_a_first_amount_is_in_every_snapshot_after_it(registry: MetricRegistry) -> None:
    """A counter that counted by ones takes an amount: whoever takes a snapshot as soon as it is there finds it."""
    counter = registry.counter("c")
    seen: list[record.Metric] = []

    class Amounts(list[int]):
        def append(self, amount: int) -> None:
            super().append(amount)
            seen.extend(registry.snapshot())

    counter._amounts = Amounts()
    counter.inc()
    assert registry.snapshot() == [record.Counter(name="c", count=1)]
    counter.inc(5)
    assert seen == registry.snapshot() == [record.Counter(name="c", count=6)]


def test_a_reservoir_needs_no_more_than_to_take_and_to_show(clock: ManualClock) -> None:
    """A sampling of the application's own, of which nothing is known but the protocol, is reported as others are."""

    class Last:
        def __init__(self) -> None:
            self.value = 0.0

        def update(self, values: list[float], now: float) -> None:  # noqa: ARG002
            self.value = values[-1]

        def view(self, now: float) -> View:  # noqa: ARG002
            return View(*[self.value] * len(View._fields))

    class Latest(Sampling):
        def new(self, now: float) -> Last:  # noqa: ARG002
            return Last()

    registry = MetricRegistry("app", clock=clock, sampling=Latest())
    registry.histogram("h").update(3)
    registry.histogram("h").update(2)
    (found,) = registry.snapshot()
    assert isinstance(found, record.Histogram)
    assert (found.count, found.max, found.p50) == (2, 3, 2)


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
