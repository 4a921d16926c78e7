"""The newest sums, read from the beginning of `metrics-agg`, and whether they are up to date. No Kafka."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from tallystream_aggregator import sums
from tallystream_aggregator.shipping.points import point

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.kafka.ledger import Epochs
    from tallystream_aggregator.kafka.reader import Read
    from tallystream_aggregator.sinks.base import Point

log = logging.getLogger(__name__)


class LatestSums:
    """Turns the topic's records, in order, into points: the last row of every key in each chunk.

    Rows of replaced writers, and of epochs that no writer has taken, are skipped; `dropped` counts them. `unreadable`
    counts records that are not sums.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._epoch = 0
        self.dropped = 0
        self.unreadable = 0

    def points(self, records: Iterable[Read]) -> list[Point]:
        """Return the points of the next records.

        Raises what `epochs` raises if the ledger can't be read. Then call it with the same records again.
        """
        rows: list[tuple[bytes | None, sums.Sum]] = []
        unreadable: list[tuple[int, str]] = []
        for record in records:
            try:
                rows.append((record.key, sums.decode(record.value or b"")))
            except msgspec.DecodeError as error:
                unreadable.append((record.offset, str(error)))
        bound = self._epochs.bound(row.epoch for _, row in rows)
        last: dict[bytes | None, sums.Sum] = {}
        for key, row in rows:
            if not self._epoch <= row.epoch <= max(bound, self._epoch):
                self.dropped += 1
                continue
            self._epoch = row.epoch
            last[key] = row
        for offset, reason in unreadable:
            log.warning("offset %d of the topic is not a sum and is not shown: %s", offset, reason)
        self.unreadable += len(unreadable)
        return [point(row) for row in last.values()]


class Freshness:
    """Tells whether the sums that were read are up to date: the position has reached a recent end of the topic.

    `max_wait_s` is the age up to which an end is recent. Times are those of a monotonic clock, in seconds.
    """

    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._asked: list[tuple[float, int]] = []
        self._fresh_s: float | None = None

    def ended(self, now_s: float, end: int) -> None:
        """Record the end of the topic at a time."""
        self._asked.append((now_s, end))

    def reached(self, position: int) -> None:
        """Record the position: the next offset to read."""
        done = [at for at, end in self._asked if end <= position]
        if done:
            self._fresh_s = max(done)
            self._asked = [(at, end) for at, end in self._asked if at > self._fresh_s]

    def stale(self, now_s: float) -> str | None:
        """Return why the sums may be out of date, None if they are up to date."""
        if self._fresh_s is None:
            return "the newest sums are not known yet"
        age_s = now_s - self._fresh_s
        return None if age_s <= self._max_wait_s else f"the newest sums were last known {age_s:.0f} s ago"
