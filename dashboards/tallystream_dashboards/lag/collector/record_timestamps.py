"""Read the oldest unconsumed record of each partition for its timestamp, if `record_timestamps` is set."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream_aggregator.kafka import clients
from tallystream_dashboards.lag.model import Probed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Consumer

    from tallystream_dashboards.lag.model import PartitionId


log = logging.getLogger(__name__)

MOST = 500
"""The maximum number of records that a round reads."""


class Prober:
    """A reader without a consumer group, for at most `seconds` a round. It caches the offsets that are still wanted."""

    def __init__(self, kafka: Mapping[str, str], *, seconds: float, stopping: Callable[[], bool]) -> None:
        self._kafka = kafka
        self._seconds = seconds
        self._stopping = stopping
        self._known: dict[tuple[PartitionId, int], Probed] = {}

    def probe(self, wanted: set[tuple[PartitionId, int]]) -> dict[PartitionId, dict[int, Probed]]:
        """Return the records at the `wanted` offsets, by partition and offset, without those that could not be read.

        Aborted transactions are skipped, as with `isolation.level=read_committed`.
        """
        # An offset without a record up to the end is read again: a record may have arrived.
        self._known = {key: one for key, one in self._known.items() if key in wanted and not one.nothing}
        # A consumer has one position in a partition, so a round reads one offset of each.
        asked: dict[PartitionId, int] = {}
        for place, offset in sorted(wanted - self._known.keys()):
            if len(asked) < MOST:
                asked.setdefault(place, offset)
        if asked:
            self._known |= {(place, asked[place]): one for place, one in self._read(asked).items()}
        found: dict[PartitionId, dict[int, Probed]] = {}
        for (place, offset), one in self._known.items():
            found.setdefault(place, {})[offset] = one
        return found

    def _read(self, asked: Mapping[PartitionId, int]) -> dict[PartitionId, Probed]:
        options = {
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 65_536,
            "queued.max.messages.kbytes": 4_096,
        }
        own = {"group.id": "tallystream-lag-reading", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = clients.consumer({**self._kafka, **own, **options})
        found: dict[PartitionId, Probed] = {}
        try:
            consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in asked.items()])
            deadline = time.monotonic() + self._seconds
            while len(found) < len(asked) and time.monotonic() < deadline and not self._stopping():
                self._take(consumer, found)
        except KafkaException as error:
            log.warning("records could not be read for their timestamps: %s", error)
        finally:
            consumer.close()
        return found

    def _take(self, consumer: Consumer, found: dict[PartitionId, Probed]) -> None:
        message = consumer.poll(0.1)
        if message is None:
            return
        topic, partition, error = message.topic(), message.partition(), message.error()
        if topic is None or partition is None or (topic, partition) in found:
            return
        if error is None:
            kind, timestamp_ms = message.timestamp()
            found[topic, partition] = Probed(timestamp_ms if kind else None)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
            found[topic, partition] = Probed(None, nothing=True)
        else:
            return
        consumer.pause([TopicPartition(topic, partition)])
