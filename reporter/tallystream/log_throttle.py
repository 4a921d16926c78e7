"""A logging filter that limits messages of the same kind to one a minute, for example while a broker is unavailable."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 60.0
"""Seconds for which a message of the same kind is not repeated."""


class RateLimitFilter(logging.Filter):
    """Accepts a log record if none of its kind was accepted in the last minute. The kind is the first argument.

    librdkafka logs ("%s [%s] %s", facility, client, text): the facility (FAIL, GETPID …) is the kind. Without
    arguments, the message is the kind. Errors with the same text are of one kind.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._last: dict[object, float] = {}
        self._swept = monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        kind = record.args[0] if isinstance(record.args, tuple) and record.args else record.msg
        kind = str(kind) if isinstance(kind, Exception) else kind
        now = self._monotonic()
        if now - self._swept >= EVERY:
            self._swept = now
            self._last = {kind: last for kind, last in self._last.copy().items() if now - last < EVERY}
        last = self._last.get(kind)
        if last is not None and now - last < EVERY:
            return False
        self._last[kind] = now
        return True
