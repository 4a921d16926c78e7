"""A deadline for several waits, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Deadline:
    """The moment `seconds` from now, by the given monotonic clock."""

    __slots__ = ("_end", "_monotonic", "seconds")

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self.seconds, self._monotonic = seconds, monotonic
        self._end = monotonic() + seconds

    def left(self) -> float:
        """Return the seconds until then, 0 when it has passed."""
        return max(self._end - self._monotonic(), 0.0)
