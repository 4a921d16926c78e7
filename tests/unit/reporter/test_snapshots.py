"""The content of a snapshot, with and without views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream import MetricRegistry, Sampling, record
from tallystream.metrics.sampling import View

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
