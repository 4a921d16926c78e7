"""The progress of a Kafka consumer: its messages and positions, updated together, so that snapshots are consistent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream.metric_factory import MetricFactory
    from tallystream.metrics.position import Position


class ConsumerProgress:
    """The counter of a consumer's messages, and its position in each partition (a metric of type `position`).

    The messages that were processed twice, over all instances, are the count minus the number of covered offsets.

    Args:
        registry: the registry of the metrics, or a child of it.
        counter_name: the name of the counter. The positions are named `<counter_name>.position`.
        tags: the tags of the counter. The positions have them too, in addition to `topic` and `partition`.
    """

    def __init__(self, registry: MetricFactory, counter_name: str, tags: Mapping[str, str] | None = None) -> None:
        self._registry = registry
        self.counter = registry.counter(counter_name, tags=tags)
        self._tags = dict(tags or {})
        self._position_name = f"{counter_name}.position"
        self._positions: dict[tuple[str, int], Position] = {}

    def __repr__(self) -> str:
        return repr(self.counter).replace("Counter", type(self).__name__, 1)

    def processed(self, messages: Iterable[Any]) -> int:
        """Count processed messages, move the positions past them, and return the number of messages counted.

        They are messages of confluent-kafka, or records of aiokafka or kafka-python. Messages with an error, which
        `consume()` also returns, are skipped. Call it after the messages have been processed, and before their offsets
        are committed.

        Raises:
            ValueError: a message without an error has no topic, partition or offset, so it is not from a consumer.
        """
        count = 0
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        for message in messages:
            if _resolve(getattr(message, "error", None)) is not None:
                continue
            topic, partition, offset = _resolve(message.topic), _resolve(message.partition), _resolve(message.offset)
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


def _resolve(attribute: Any) -> Any:
    return attribute() if callable(attribute) else attribute
