"""The filter that limits repeated log messages."""

from __future__ import annotations

import logging

from tallystream.log_throttle import RateLimitFilter
from tallystream.testing import ManualClock


def test_each_kind_is_logged_once_a_minute() -> None:
    """A message is not repeated within a minute; other kinds, and the same one later, are logged."""
    clock = ManualClock()
    rate_limit = RateLimitFilter(clock.monotonic)

    def logged(kind: str) -> bool:
        return rate_limit.filter(
            logging.LogRecord("n", logging.ERROR, "", 0, "%s [%s] %s", (kind, "client", "text"), None)
        )

    assert [logged("FAIL"), logged("FAIL"), logged("GETPID")] == [True, False, True]
    clock.advance(61)
    assert [logged("FAIL"), logged("FAIL")] == [True, False]
