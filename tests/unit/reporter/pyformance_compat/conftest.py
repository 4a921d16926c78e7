"""What the tests of the face share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged, every time: but for a test, the same complaint is quiet for a minute, whoever made it before."""
    logger = logging.getLogger("tallystream.reporter.pyformance")
    kept, logger.filters = logger.filters, []
    yield caplog
    logger.filters = kept
