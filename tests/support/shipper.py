"""A scripted lease and tail of `metrics-agg`, for unit tests of the shipper."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import TopicPartition

from tallystream_aggregator import sums
from tallystream_aggregator.shipping.shipper import MAX_RECORDS, POLL_S
from tallystream_aggregator.shipping.tail import Record
from tallystream_aggregator.stream.broker import Bounds, BrokerError, Place, Positions

AGG = Place("metrics-agg", 0)


def record(offset: int, name: str = "n", count: int | None = None) -> Record:
    """A row of `metrics-agg`, whose count is its offset by default."""
    row = sums.Sum(app="a", name=name, type="counter", count=offset if count is None else count, ts=offset)
    return Record(AGG.topic, offset, name.encode(), row.value())


class ScriptedLease:
    """A lease that is held. `log` has the committed offset; an exclamation mark means that it waited for the answer."""

    def __init__(self, log: list[str]) -> None:
        self.held, self.times, self.offset = True, 1, -1001
        self.log = log
        self.on_check: Callable[[float], object] = lambda _: None

    def check(self, seconds: float = 0.0) -> None:
        """Let the group decide, if a test wants that."""
        assert 0 <= seconds <= POLL_S
        if seconds:
            self.on_check(seconds)

    def lose(self) -> None:
        """Let another shipper have the lease."""
        self.held = False

    def pass_on(self) -> None:
        """Let another shipper have the lease, and give it back."""
        self.held, self.times = True, self.times + 1

    def committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        for one in partitions:
            one.offset = self.offset
        return [one for one in partitions if one.offset >= 0]

    def commit(self, offsets: list[TopicPartition], *, wait: bool) -> None:
        self.log.append(", ".join(f"to {one.offset}" for one in offsets) + ("!" if wait else ""))

    def close(self) -> None:
        self.log.append("closed")


class ScriptedTail:
    """A tail of `metrics-agg`. `records` are read next. The brokers answer if `answers`."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.answers = True
        self.positions: Positions = {}
        self.begun: list[Positions] = []
        self.restarted: Callable[[Positions], object] = lambda _: None

    def places(self) -> list[Place]:
        return [AGG]

    def begin(self, positions: Positions) -> None:
        self.begun.append(positions)
        self.positions = dict(positions)

    def ask(self) -> dict[Place, Bounds]:
        """Return nothing, or fail."""
        if not self.answers:
            raise BrokerError("no answer.")
        return {}

    def read(self, limit: int, timeout_s: float) -> list[Record]:
        assert (limit, timeout_s) == (MAX_RECORDS, POLL_S)
        found, self.records = self.records, []
        if found:
            self.positions = {AGG: found[-1].offset + 1}
        return found

    def close(self) -> None:
        """Do nothing."""
