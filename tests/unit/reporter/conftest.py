"""A registry whose clock only moves as a test tells it, and an end for every reporter that a test makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystream import MetricRegistry
from tallystream.reporters import scheduled
from tallystream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry(clock: ManualClock) -> MetricRegistry:
    return MetricRegistry("app", clock=clock)


@pytest.fixture(autouse=True)
def _no_reporter_is_left_open() -> Iterator[None]:
    """Stop what a test left open: at the end of the interpreter its last report would print after pytest's summary."""
    yield
    for reporter in list(scheduled._reporters):
        reporter.stop(1)
