"""The progress of a Kafka consumer or producer: its messages and positions, which are updated in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream.metric_factory import MetricFactory
    from tallystream.metrics.position import Position


class ConsumerProgress:
    """What a consumer has processed: the counter of its messages, and its position in each partition.

    The messages that were counted twice, over all instances, are the count minus the number of covered offsets. If
    `taken` is called before the work, too, the same difference of what was taken is the most that was processed twice.

    Args:
        registry: the registry of the metrics, or a child of it.
        counter_name: the name of the counter. The positions are named `<counter_name>.position`, and what was taken
            is `<counter_name>.taken` and `<counter_name>.taken.position`.
        tags: the tags of the counter. The positions have them too, in addition to `topic` and `partition`.
    """

    def __init__(self, registry: MetricFactory, counter_name: str, tags: Mapping[str, str] | None = None) -> None:
        self._registry, self._name, self._tags = registry, counter_name, dict(tags or {})
        self._processed = _CountedOffsets(registry, counter_name, self._tags)
        self._taken: _CountedOffsets | None = None
        self.counter = self._processed.counter

    def taken(self, messages: Iterable[Any]) -> int:
        """Count messages that are about to be processed, and return their number. Errors are skipped.

        Call it before the work, and wait for `report_now()`. Then it is known of a killed process how many messages it
        may have processed without counting them.

        Raises:
            ValueError: as `processed()`.
        """
        if self._taken is None:
            self._taken = _CountedOffsets(self._registry, f"{self._name}.taken", self._tags)
        return self._taken.add(messages)

    def processed(self, messages: Iterable[Any]) -> int:
        """Count processed messages, move the positions past them, and return the number of messages counted.

        They are messages of confluent-kafka, or records of aiokafka or kafka-python. Messages with an error, which
        `consume()` also returns, are skipped. Call it after the messages have been processed, and before their offsets
        are committed.

        Raises:
            ValueError: a message without an error has no topic, partition or offset, so it is not from a consumer.
        """
        return self._processed.add(messages)


class ProducerProgress:
    """What a producer has sent: the counter of its messages, and the offsets that they have in each partition.

    Compared with the progress of consumers, it shows what was lost, and what is in flight.

    Args:
        registry: the registry of the metrics, or a child of it.
        counter_name: the name of the counter. The offsets are positions with the name `<counter_name>.position`.
        tags: the tags of the counter. The positions have them too, in addition to `topic` and `partition`.
    """

    def __init__(self, registry: MetricFactory, counter_name: str, tags: Mapping[str, str] | None = None) -> None:
        self._sent = _CountedOffsets(registry, counter_name, dict(tags or {}))
        self.counter = self._sent.counter

    def delivered(self, error: object, message: Any) -> None:
        """Count a message that the broker has, and its offset. With an `error`, nothing is counted.

        It is a delivery callback of confluent-kafka: `producer.produce(…, on_delivery=progress.delivered)`. With
        aiokafka or kafka-python, call it with None and the metadata of the record.

        Raises:
            ValueError: there is no error, and the message has no topic, partition or offset.
        """
        if error is None:
            self._sent.add((message,))


class _CountedOffsets:
    """A counter of messages, and the positions of their partitions."""

    def __init__(self, registry: MetricFactory, name: str, tags: Mapping[str, str]) -> None:
        self._registry, self._tags = registry, tags
        self.counter = registry.counter(name, tags=tags)
        self._position_name = f"{name}.position"
        self._positions: dict[tuple[str, int], Position] = {}

    def add(self, messages: Iterable[Any]) -> int:
        """Count messages and move the positions past them in one step, and return their number."""
        count = 0
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        for message in messages:
            if _read(message, "error") is not None:
                continue
            topic, partition = _read(message, "topic"), _read(message, "partition")
            offset = _read(message, "offset")
            if topic is None or partition is None or offset is None or offset < 0:
                raise ValueError(f"a message of topic {topic!r}, partition {partition!r} has the offset {offset!r}")
            low, high = spans.get((topic, partition), (offset, offset))
            spans[topic, partition] = (min(low, offset), max(high, offset))
            count += 1
        positions = [(self._position(*where), low, high + 1) for where, (low, high) in spans.items()]
        with self._registry.atomic():
            self.counter.inc(count)
            for position, start, end in positions:
                position.advance(start, end)
        return count

    def _position(self, topic: str, partition: int) -> Position:
        position = self._positions.get((topic, partition))
        if position is None:
            position = self._registry.position(topic, partition, name=self._position_name, tags=self._tags)
            self._registry.colocate(self.counter, position)
            self._positions[topic, partition] = position
        return position


def _read(message: Any, name: str) -> Any:
    attribute = getattr(message, name, None)
    return attribute() if callable(attribute) else attribute
