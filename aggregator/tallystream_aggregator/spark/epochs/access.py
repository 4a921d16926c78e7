"""How a task gets its access to Kafka. It is sent to the Python workers, so it imports no more than they need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystream_aggregator.stream.kafka import KafkaBroker
from tallystream_aggregator.stream.kafka_calls import Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream_aggregator.kafka.topic_selection import Selection


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """The options, the topics that the table reads, and the group of `stream.kafka.KafkaBroker`."""

    kafka: Mapping[str, str] = field(repr=False)
    selection: Selection
    group: str

    def __call__(self, stopped: Callable[[], bool]) -> KafkaBroker:
        """Return a broker whose calls end early if `stopped` returns True."""
        return KafkaBroker(self.kafka, self.selection, self.group, Timeouts(stopped=stopped))
