"""A scripted subscription with `metrics-agg`, for unit tests of the shipper."""

from __future__ import annotations

from tallystream_aggregator import sums
from tallystream_aggregator.shipping.shipper import MAX_RECORDS, POLL_S
from tallystream_aggregator.shipping.subscription import Record
from tallystream_aggregator.stream.broker import Place

AGG = Place("metrics-agg", 0)


def record(offset: int, name: str = "n", count: int | None = None) -> Record:
    """A row of `metrics-agg`, whose count is its offset by default."""
    row = sums.Sum(app="a", name=name, type="counter", count=offset if count is None else count, ts=offset)
    return Record(AGG.topic, offset, name.encode(), row.value())


class ScriptedSubscription:
    """A subscription with `metrics-agg`. `log` has "done" for each read that is written.

    `records` are read next. If `answers`, the brokers answer at `now_s`.
    """

    def __init__(self, log: list[str]) -> None:
        self.places: frozenset[Place] | None = frozenset({AGG})
        self.changes = 1
        self.records: list[Record] = []
        self.answers = True
        self.now_s = self.answered_s = 100.0
        self.on_wait: list[int] = []
        self.log = log

    def read(self, limit: int, timeout_s: float) -> list[Record]:
        """Return the records."""
        assert (limit, timeout_s) == (MAX_RECORDS, POLL_S)
        found, self.records = self.records, []
        return found

    def written(self) -> None:
        """Note it."""
        self.log.append("done")

    def wait(self, seconds: float) -> None:
        """Let the group decide, if a test wants that."""
        assert 0 <= seconds <= POLL_S
        self.changes += self.on_wait.pop(0) if self.on_wait else 0

    def ask(self) -> bool:
        """Return whether the brokers answer."""
        if self.answers:
            self.answered_s = self.now_s
        return self.answers
