"""Retries with growing pauses until the store is available or a stop is requested."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.signals import SignalSafeEvent

log = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 0.2, 15.0


class StoppedError(Exception):
    """A stop was requested while the store was unavailable. The batch runs again after a restart."""


def pause_s(attempt: int, random_: Callable[[], float] = random.random) -> float:
    """Return the pause in seconds before attempt 1, 2, 3 …: doubled each time, capped, with jitter in its upper half.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (equal jitter).
    """
    longest = min(LONGEST_S, FIRST_S * 2.0 ** min(attempt - 1, 30))
    return float(longest / 2 + random_() * longest / 2)


def retry(write: Callable[[], None], stop: SignalSafeEvent, *, random_: Callable[[], float] = random.random) -> int:
    """Call `write` until it does not raise SinkUnavailableError, and return the number of failures.

    A pause is at least as long as the store asks for.

    Raises:
        StoppedError: `stop` was set while waiting.
    """
    attempt = 0
    while True:
        try:
            write()
        except SinkUnavailableError as error:
            attempt += 1
            least_s = error.retry_after_s
            if attempt == 1:
                log.warning("%s Points wait on Kafka and are written when it is available again.", error)
        else:
            if attempt:
                log.info("available again after %d attempts", attempt + 1)
            return attempt
        if stop.wait(max(least_s, pause_s(attempt, random_))):
            raise StoppedError
