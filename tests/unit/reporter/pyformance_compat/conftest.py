"""Fixtures of the façade's tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Return what is logged, without the filter that drops a message repeated within a minute."""
    loggers = [logging.getLogger(f"tallystream.{name}") for name in ("pyformance_compat", "metrics.gauges")]
    kept = [logger.filters for logger in loggers]
    for logger in loggers:
        logger.filters = []
    yield caplog
    for logger, filters in zip(loggers, kept, strict=True):
        logger.filters = filters
