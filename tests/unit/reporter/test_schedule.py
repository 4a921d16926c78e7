"""The schedule of reports: fixed times, and one report after a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry
from tallystream.reporters import thread
from tallystream.reporters.thread import Schedule
from tallystream.testing import InMemoryReporter, ManualClock

if TYPE_CHECKING:
    import pytest


@given(st.floats(0, 1e6), st.floats(0.01, 3600), st.floats(0, 1e6))
def test_the_next_time_is_always_in_the_future(first: float, interval: float, late: float) -> None:
    """Each time is due once. After a report, the next one is due later, within one interval."""
    schedule = Schedule(first, interval)
    now = first + late
    assert not schedule.pop_due(first - interval)
    assert schedule.pop_due(now)
    assert round((schedule.due - first) / interval, 3).is_integer()
    assert now < schedule.due + 1e-6 * interval + 1e-6
    assert schedule.due <= now + interval * (1 + 1e-9) + 1e-6


def test_reporters_that_start_together_do_not_report_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first report of each is due at a random time in the first interval."""
    clock, made = ManualClock(), list[tuple[float, float]]()

    class Noted(Schedule):
        def __init__(self, first: float, interval: float) -> None:
            made.append((first, interval))
            super().__init__(first, interval)

    monkeypatch.setattr(thread, "Schedule", Noted)
    clock.advance(1000)
    for _ in range(20):
        with InMemoryReporter(MetricRegistry("orders", clock=clock), interval=60):
            pass
    assert {interval for _, interval in made} == {60}
    assert all(1000 <= first <= 1060 for first, _ in made)
    assert len({first for first, _ in made}) == 20
