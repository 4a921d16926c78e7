"""Read single records for their timestamps, where that is asked for: the oldest unconsumed one of each partition."""

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
"""How many records a round reads: the others keep their age from the history of ends."""


class Prober:
    """Reads without a group, at most `seconds` a round, and remembers what it read while it is asked for."""

    def __init__(self, kafka: Mapping[str, str], *, seconds: float, stopping: Callable[[], bool]) -> None:
        self._kafka = kafka
        self._seconds = seconds
        self._stopping = stopping
        self._known: dict[tuple[PartitionId, int], Probed] = {}

    def probe(self, wanted: set[tuple[PartitionId, int]]) -> dict[PartitionId, dict[int, Probed]]:
        """Return what is at the offsets (of partitions) that are `wanted`; what could not be read is not there.

        Aborted transactions are skipped, as a consumer that reads what is committed does.
        """
        # Nothing to the end is not forever: a record may come.
        self._known = {key: one for key, one in self._known.items() if key in wanted and not one.nothing}
        # A reader has one position in a partition: of several offsets in one, the next round reads the next.
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
