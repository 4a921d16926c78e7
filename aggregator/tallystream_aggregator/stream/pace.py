"""The pace of a loop: when its next step begins, and how many records it may have."""

from __future__ import annotations

MAX_PAUSE_S = 5.0
"""After a step the loop waits as long as publishing took, so that a busy table takes larger steps, and no longer than
this: a broker may be slow once, and nothing is read meanwhile."""

MAX_FAILURES = 10
"""After so many failures of a step of one record the loop stops: that record can't be published."""


class Pace:
    """The pace of a loop whose steps begin at least `spacing_s` seconds apart and have up to `max_records`.

    With a `max_rate`, no more records are read in a second, over several seconds. A step has at most as many.

    `limit` is the number of records of the next step. It is halved when a step fails, down to one record.
    """

    def __init__(self, spacing_s: float, max_records: int, max_rate: int | None = None) -> None:
        self._spacing_s, self._max_rate = spacing_s, max_rate
        self.limit = self._max_records = min(max_records, max_rate or max_records)
        self.begins_s = float("-inf")
        self._began_s = float("-inf")
        self._failures = 0

    def begin(self, now_s: float) -> None:
        """Note that a step begins."""
        self._began_s, self.begins_s = now_s, now_s + self._spacing_s

    def published(self, seconds: float, records: int) -> None:
        """Note that a step of this many records was published in this time."""
        pause_s = min(seconds, MAX_PAUSE_S)
        rate_s = records / self._max_rate if self._max_rate else 0.0
        self.begins_s = max(self.begins_s, self._began_s + max(seconds + pause_s, rate_s))
        self.limit, self._failures = min(2 * self.limit, self._max_records), 0

    def failed(self, records: int, *, refused: bool) -> bool:
        """Note that a step of this many records failed: Kafka refused it, or did not answer in time.

        Return whether the loop must stop.
        """
        if records <= 1 and refused:
            self._failures += 1
        if records:  # else it had only rows
            self.limit = max(1, min(self.limit, records) // 2)
        return self._failures >= MAX_FAILURES
