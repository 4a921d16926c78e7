"""How far a consumer got in one partition."""

from __future__ import annotations

from operator import index
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from tallystream import record
from tallystream.metrics.base import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping


class Position(Metric):
    """The offsets of one topic and partition that were processed: where that began, and the next offset to come.

    Set it together with the counter of what was processed (`registry.atomic()`, or `ConsumerProgress`, which does
    both): processed twice = everything processed less the offsets covered.
    """

    kind: ClassVar[str] = "position"
    __slots__ = ("_lock", "_position", "_start")

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, tags)
        self._start: int | None = None
        self._position = 0
        self.reset_after_fork()

    def advance(self, start: int, position: int) -> None:
        """Take that the offsets from `start` to before `position` were processed; the furthest on each side is kept.

        Raises:
            ValueError: not 0 <= start <= position.
            TypeError: they are no whole numbers.
        """
        start, position = index(start), index(position)
        if not 0 <= start <= position:
            raise ValueError(f"{self!r} can't cover the offsets from {start} to {position}; use 0 <= start <= position")
        with self._lock:
            self._start = start if self._start is None else min(self._start, start)
            self._position = max(self._position, position)

    @property
    def start(self) -> int | None:
        """The first offset processed, None before there is one."""
        return self._start

    @property
    def position(self) -> int | None:
        """The offset after the furthest one processed, None before there is one."""
        return None if self._start is None else self._position

    def read(self) -> record.Position | None:
        """Return start and position in the record's form, None before the first offset."""
        with self._lock:
            if self._start is None:
                return None
            return record.Position(name=self.name, tags=self.tags, start=self._start, position=self._position)

    def reset_after_fork(self) -> None:
        """Forget the offsets, which the parent covered."""
        self._lock = Lock()
        self._start = None
        self._position = 0
