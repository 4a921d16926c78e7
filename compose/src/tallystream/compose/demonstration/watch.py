"""Watching `metrics-agg` while the demonstration runs: the newest sums, and whether a count ever dipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tallystream.aggregator import sums

if TYPE_CHECKING:
    from tallystream.aggregator.sums import Sum
    from tallystream.compose.demonstration.replay import Name

INTEGRAL = ("count", "position", "start")


class Watch:
    """Reads the topic from its beginning. `dips` are sentences about counts that fell."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "demo-watch", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._next = 0
        self.newest: dict[str, Sum] = {}
        self.dips: list[str] = []

    def read(self) -> None:
        """Take what has come since the last call; waits a tenth of a second at most.

        Raises:
            KafkaException: the broker says that something is wrong with the topic.
        """
        for message in self._consumer.consume(1000, timeout=0.1):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            self._next = (message.offset() or 0) + 1
            value = message.value()
            if value is not None:
                self._take(sums.decode(value))

    def read_to(self, end: int) -> None:
        """Take everything up to offset `end`, exclusive.

        Raises:
            KafkaException: the broker says that something is wrong with the topic.
        """
        while self._next < end:
            self.read()

    def count(self, name: str) -> int:
        """Return the newest count of a metric without tags, 0 before there is one."""
        row = self.newest.get(name)
        return 0 if row is None or row.count is None else row.count

    def values(self, app: str) -> dict[Name, float]:
        """Return an app's sums by (metric with its tags as text, field), as `replay` does."""
        found: dict[Name, float] = {}
        for label, row in self.newest.items():
            fields = [*INTEGRAL, "sum"] if row.type == "histogram" else INTEGRAL
            for field in fields if row.app == app else ():
                value = getattr(row, field)
                if value is not None:
                    found[label, field] = value
        return found

    def close(self) -> None:
        """Release the connection."""
        self._consumer.close()

    def _take(self, row: Sum) -> None:
        tags = ",".join(f"{name}={value}" for name, value in sorted(row.tags.items()))
        label = f"{row.name}{{{tags}}}" if tags else row.name
        before = self.newest.get(label)
        if before is not None and (row.epoch, row.batch) < (before.epoch, before.batch):
            return
        if before is not None and before.count is not None and (row.count or 0) < before.count:
            self.dips.append(f"{label} fell from {before.count} to {row.count}")
        self.newest[label] = row
