"""A registry with a manual clock, and the stop of every reporter that a test starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tallystream import MetricRegistry
from tallystream.reporters import scheduled
from tallystream.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry(clock: ManualClock) -> MetricRegistry:
    return MetricRegistry("app", clock=clock)


@pytest.fixture(autouse=True)
def _stop_reporters() -> Iterator[None]:
    """Stop the reporters of the test; otherwise their last reports would print after pytest's summary."""
    yield
    for reporter in list(scheduled._reporters):
        reporter.stop(1)
