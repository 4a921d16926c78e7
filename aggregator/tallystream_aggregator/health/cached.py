"""A text that takes long to make, kept between requests."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLOW_S = 0.1
"""A text that takes less is made again for every version, in seconds."""
PAUSE = 5
"""A slower text is kept for this many times the seconds that it took: making it takes a sixth of a core at most."""


class CachedText:
    """The UTF-8 text of the newest version of something, made by one thread while others wait; for any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._version: object = None
        self._body: bytes | None = None
        self._due = 0.0

    def body(self, version: object, make: Callable[[], str]) -> bytes:
        """Return the text of this version, or of an older one that took long and was made a short time ago."""
        with self._lock:
            began = self._clock()
            if self._body is None or (version != self._version and began >= self._due):
                self._body, self._version = make().encode(), version
                took = self._clock() - began
                self._due = self._clock() + (PAUSE * took if took >= SLOW_S else 0)
            return self._body

    def clear(self) -> None:
        """Forget the text: the next one is made when it is asked for."""
        with self._lock:
            self._body = None
