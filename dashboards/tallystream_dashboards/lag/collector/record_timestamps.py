"""Read the oldest unconsumed record of each partition for its timestamp, if `record_timestamps` is set."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream_aggregator.kafka import clients
from tallystream_dashboards.lag.offsets import NextRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Consumer

    from tallystream_dashboards.lag.offsets import PartitionId


log = logging.getLogger(__name__)

MAX_RECORDS = 500
"""The maximum number of records that a round reads."""


class RecordReader:
    """A consumer without a group that reads for at most `seconds` a round. It caches the records."""

    def __init__(self, kafka: Mapping[str, str], *, seconds: float, stopping: Callable[[], bool]) -> None:
        self._kafka = kafka
        self._seconds = seconds
        self._stopping = stopping
        self._cache: dict[tuple[PartitionId, int], NextRecord] = {}

    def read(self, requested: set[tuple[PartitionId, int]]) -> dict[tuple[PartitionId, int], NextRecord]:
        """Return the records at the `requested` offsets of partitions, without those that could not be read.

        Records of open and aborted transactions count: the group may read them, whose isolation level is not known.
        """
        # An offset without a record up to the end is read again: a record may have arrived.
        self._cache = {key: record for key, record in self._cache.items() if key in requested and record.exists}
        # A consumer has one position in a partition, so a round reads one offset of each.
        positions: dict[PartitionId, int] = {}
        for partition, offset in sorted(requested - self._cache.keys()):
            if len(positions) < MAX_RECORDS:
                positions.setdefault(partition, offset)
        if positions:
            records = self._consume(positions)
            self._cache |= {(partition, positions[partition]): record for partition, record in records.items()}
        return dict(self._cache)

    def _consume(self, positions: Mapping[PartitionId, int]) -> dict[PartitionId, NextRecord]:
        options = {
            "group.id": "tallystream-lag-reading",  # it joins no group, and commits nothing
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # retention may delete the record; librdkafka's default would read none
            "fetch.message.max.bytes": 65_536,
            "queued.max.messages.kbytes": 4_096,
        }
        consumer = clients.consumer({**self._kafka, **options})
        records: dict[PartitionId, NextRecord] = {}
        try:
            consumer.assign([TopicPartition(*partition, offset) for partition, offset in positions.items()])
            deadline = time.monotonic() + self._seconds
            while len(records) < len(positions) and time.monotonic() < deadline and not self._stopping():
                self._poll(consumer, records)
        except KafkaException as error:
            log.warning("records could not be read for their timestamps: %s", error)
        finally:
            consumer.close()
        return records

    def _poll(self, consumer: Consumer, records: dict[PartitionId, NextRecord]) -> None:
        message = consumer.poll(0.1)
        if message is None:
            return
        topic, partition, error = message.topic(), message.partition(), message.error()
        if topic is None or partition is None or (topic, partition) in records:
            return
        if error is None:
            kind, timestamp_ms = message.timestamp()
            records[topic, partition] = NextRecord(timestamp_ms if kind else None)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
            records[topic, partition] = NextRecord(None, exists=False)
        else:
            return
        consumer.pause([TopicPartition(topic, partition)])
