"""Ask the broker for the first and the next offset of every partition, and detect deleted records."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicPartition

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.spark.catch_up.reader import LostRecordsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Consumer

    from tallystream_aggregator.kafka.topic_selection import Offsets, Selection
    from tallystream_aggregator.spark.kafka_options import Fetch

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0

Bounds = dict[str, dict[str, tuple[int, int]]]
"""topic → partition → (the first existing offset, the one after the last)"""


class Ends:
    """Asks a broker for the bounds of all selected partitions, with the retries of `fetch`.

    `kafka` are librdkafka's options. The connection stays open from the first call to `close`.
    """

    def __init__(self, selection: Selection, kafka: Mapping[str, str], group: str, fetch: Fetch) -> None:
        self._selection, self._fetch = selection, fetch
        self._options: dict[str, Any] = {**kafka, "group.id": group, "enable.auto.commit": False}
        self._consumer: Consumer | None = None

    def ask(self) -> Bounds:
        """Return the bounds of all selected partitions that exist.

        Raises:
            KafkaException: the broker did not answer in any try.
        """
        for _ in range(self._fetch.tries - 1):
            try:
                return self._ask()
            except KafkaException as error:
                log.warning("cannot read the ends of the topics; trying again: %s", error)
                time.sleep(self._fetch.pause_ms / 1000)
        return self._ask()

    def close(self) -> None:
        """Release the connection."""
        if self._consumer is not None:
            self._consumer.close()

    def _ask(self) -> Bounds:
        if self._consumer is None:
            self._consumer = clients.consumer(self._options, polled=False)
        consumer = self._consumer
        return {
            topic: {str(p): bounds_of(consumer, TopicPartition(topic, p), timeout=TIMEOUT_S) for p in partitions}
            for topic, partitions in self._selection.seen_by(consumer, timeout=TIMEOUT_S).items()
        }


def require_all(start: Offsets, found: Bounds) -> None:
    """Require that no record at or after `start` was deleted.

    Raises:
        LostRecordsError: a partition does not exist any more, begins after its offset in `start` or ends before it, or
            is new and does not begin at 0.
    """
    for topic, partitions in start.items():
        for p, first in partitions.items():
            bound = found.get(topic, {}).get(p)
            if bound is None:
                raise LostRecordsError(f"topic {topic}, partition {p}: it is gone, and {first} is the next offset.")
            if not bound[0] <= first <= bound[1]:
                raise LostRecordsError(
                    f"topic {topic}, partition {p}: it has offsets {bound[0]} to {bound[1]}, and {first} is the next."
                )
    for topic, bounds in found.items():
        for p, (low, _) in bounds.items():
            if low > 0 and p not in start.get(topic, {}):
                raise LostRecordsError(f"topic {topic}, partition {p}: it is new, and begins at offset {low}.")
