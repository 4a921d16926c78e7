"""The reader of a whole topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.reader import read_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest
    from confluent_kafka import TopicPartition


class Broker:
    """A consumer of a topic with three records, of which retention deletes two after their offsets were asked for."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._reset = options.get("auto.offset.reset", "largest")  # librdkafka's default
        self._left: list[Any] = []

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ARG002
        """Return the topic, which has one partition."""
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:  # noqa: ARG002
        """Return the offsets before the deletion."""
        return 0, 3

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begin at these offsets, of which the broker has deleted some."""
        (begin,) = partitions
        offset = {"earliest": 2, "largest": 3}[self._reset] if begin.offset < 2 else begin.offset
        self._left = [_message(number, None) for number in range(offset, 3)]
        self._left.append(_message(3, KafkaError(KafkaError._PARTITION_EOF)))

    def poll(self, timeout: float) -> Any:  # noqa: ARG002
        """Return the next record, or the event at the end."""
        return self._left.pop(0)

    def unassign(self) -> None:
        """Read no more."""

    close = unassign


def _message(offset: int, error: KafkaError | None) -> Any:
    fields = {"error": error, "partition": 0, "offset": offset, "key": b"k", "value": b"%d" % offset}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in fields.items()})


def test_records_that_retention_deletes_meanwhile_do_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader continues at the first record that is left. An empty ledger would be read as a new one."""
    monkeypatch.setattr(clients, "consumer", lambda options, **_: Broker(options))
    assert [read.offset for read in read_topic("metrics-ledger", {"bootstrap.servers": "kafka"})] == [2]
