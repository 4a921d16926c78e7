"""A logging filter: the same complaint once a minute is enough, however often a broker that is unavailable is tried."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 60.0
"""Seconds for which a complaint of the same kind is not repeated."""


class RateLimitFilter(logging.Filter):
    """Lets a record pass if none of its kind did in the last minute; the kind is the message's first argument.

    librdkafka logs as ("%s [%s] %s", facility, client, text): the facility (FAIL, GETPID …) is the kind.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._last: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record is to be logged."""
        kind = record.args[0] if isinstance(record.args, tuple) and record.args else record.msg
        now = self._monotonic()
        last = self._last.get(kind)
        if last is not None and now - last < EVERY:
            return False
        self._last[kind] = now
        return True
