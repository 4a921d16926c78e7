"""A registry whose clock only moves as a test tells it."""

from __future__ import annotations

import pytest

from tallystream.reporter import MetricRegistry
from tallystream.reporter.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry(clock: ManualClock) -> MetricRegistry:
    return MetricRegistry("app", clock=clock)
