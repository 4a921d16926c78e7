"""Repeats a write until the store is available, with growing pauses."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

MIN_PAUSE_S, MAX_PAUSE_S = 0.2, 15.0


class StoppedError(Exception):
    """A write that waited for the store was given up: a stop was requested, or another shipper took over."""


def retry(write: Callable[[], None], pause: Callable[[float], bool]) -> None:
    """Call `write` until it does not raise SinkUnavailableError, with growing pauses.

    A pause is at least as long as the store requests. `pause` waits for some seconds, and returns True to give up.

    Raises:
        StoppedError: `pause` returned True.
    """
    attempt = 0
    while True:
        try:
            write()
        except SinkUnavailableError as error:
            attempt += 1
            requested_s = error.retry_after_s
            if attempt == 1:
                log.warning("%s Points wait on Kafka and are written when it is available again.", error)
        else:
            if attempt:
                log.info("available again after %d attempts", attempt + 1)
            return
        if pause(max(requested_s, pause_s(attempt))):
            raise StoppedError


def pause_s(attempt: int) -> float:
    """Return the pause in seconds after attempt 1, 2, 3 …: doubled each time, capped, with jitter in its upper half.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (equal jitter).
    """
    longest = min(MAX_PAUSE_S, MIN_PAUSE_S * 2.0 ** min(attempt - 1, 30))
    return random.uniform(longest / 2, longest)
