"""The position of a consumer in one partition."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, ClassVar

from tallystream import record
from tallystream.metrics.base import Metric
from tallystream.record import MAX_COUNT
from tallystream.validation import as_count

if TYPE_CHECKING:
    from collections.abc import Mapping


class Position(Metric):
    """The offsets that were processed in one topic and partition: the first one, and the next one to process.

    Update it together with the counter of processed messages (with `registry.atomic()` or `ConsumerProgress`). The
    messages that were processed twice are then the count minus the number of offsets covered.
    """

    kind: ClassVar[str] = "position"
    __slots__ = ("_lock", "_position", "_start")

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, tags)
        self._start: int | None = None
        self._position = 0
        self.reset_after_fork()

    def advance(self, start: int, position: int) -> None:
        """Add the processed offsets from `start` to `position`, exclusive. The lowest start and highest end are kept.

        Raises:
            ValueError: 0 <= start <= position < 2**63 is false.
            TypeError: an offset is not a whole number.
        """
        start, position = as_count(start), as_count(position)
        if not 0 <= start <= position <= MAX_COUNT:
            raise ValueError(
                f"{self!r} can't advance by the offsets from {start} to {position}; use 0 <= start <= position < 2**63"
            )
        with self._lock:
            # No function is called here, as in UpDownCounter.
            if self._start is None or start < self._start:
                self._start = start
            self._position = max(self._position, position)

    @property
    def start(self) -> int | None:
        """The first processed offset, or None if there is none."""
        return self._start

    @property
    def position(self) -> int | None:
        """The offset after the highest processed one, or None if there is none."""
        return None if self._start is None else self._position

    def collect(self, *, views: bool) -> record.Position | None:  # noqa: ARG002 - used by distributions
        """Return start and position as a record struct, or None before the first offset."""
        with self._lock:
            if self._start is None:
                return None
            return record.Position(name=self.name, tags=self.tags, start=self._start, position=self._position)

    def reset_after_fork(self) -> None:
        """Remove the offsets, which the parent processed."""
        self._lock = RLock()  # not a Lock, as in UpDownCounter
        self._start = None
        self._position = 0
