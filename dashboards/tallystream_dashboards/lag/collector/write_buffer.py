"""Points that the store has not taken yet: bounded, oldest first."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.base import Point, Sink

LIMIT = 200_000
"""How many points are held while the store is away: an outage of about 10 minutes for 600 partitions every 2 s."""


class Unwritten:
    """Holds each round's points until the store has them; past `limit` points the oldest rounds go, and are counted."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._rounds: deque[list[Point]] = deque()
        self._limit = limit
        self._held = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._held

    def add(self, points: list[Point]) -> None:
        """Take one round's points; the newest round is always kept."""
        self._rounds.append(points)
        self._held += len(points)
        while self._held > self._limit and len(self._rounds) > 1:
            lost = len(self._rounds.popleft())
            self._held -= lost
            self.dropped += lost

    def write_to(self, sink: Sink) -> int:
        """Write all rounds, oldest first, and return how many points that were.

        Raises:
            SinkUnavailableError: the store is away; what it has not taken is still held, and is written next time.
        """
        written = 0
        while self._rounds:
            sink.write(self._rounds[0])
            # A round is let go only when it is durable; writing it twice after a failure changes nothing in the store.
            sink.flush()
            done = len(self._rounds.popleft())
            self._held -= done
            written += done
        return written
