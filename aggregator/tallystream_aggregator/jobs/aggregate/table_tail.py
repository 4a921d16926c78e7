"""Reads the newest committed records of the loops from the ends of their partitions, while they run.

Spark reports an epoch when it ends. Positions and numbers of lives are on the topic a moment after each step.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.decoding import json_decoder
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.stream.positions import PositionsRow, key_of
from tallystream_aggregator.table.rows import ShardRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message

    from tallystream_aggregator.kafka.topics import Topics

LAST = 512
"""How many offsets at the end of a partition are read. At fifty steps a second, rows are about 100 offsets apart."""

TIMEOUT_S = 2.0

_decode_positions = json_decoder(PositionsRow)
_decode_shard = json_decoder(ShardRow)


class ShardRows(NamedTuple):
    """The newest rows of a loop that were found so far. That of a combiner has only positions."""

    positions: PositionsRow | None = None
    shard: ShardRow | None = None


class TableTail:
    """Follows the ends of the partitions of a table with so many shards. For one thread.

    `newest` has what was found, by shard, and that of the combiner after the last shard.

    Raises:
        ConfigError: librdkafka rejects an option of `kafka`.
    """

    def __init__(self, topics: Topics, shards: int, kafka: Mapping[str, str]) -> None:
        self._topics = dict.fromkeys(range(shards), topics.table)
        if shards > 1:
            self._topics[shards] = topics.shards
        self._ends = dict.fromkeys(self._topics, -1)
        self.newest = {number: ShardRows() for number in self._topics}
        self._consumer = clients.reading_consumer(
            kafka,
            options={"queued.max.messages.kbytes": 8192, "fetch.wait.max.ms": 100},
        )

    def poll(self) -> bool:
        """Read what is new, and return whether anything was. It takes up to `TIMEOUT_S`, usually some milliseconds.

        Raises:
            KafkaException: the broker did not answer in time.
        """
        starts = []
        for number, topic in self._topics.items():
            known = self._ends[number]
            low, high = bounds_of(self._consumer, TopicPartition(topic, number), timeout=TIMEOUT_S)
            if high > known:
                starts.append(TopicPartition(topic, number, max(low, known, high - LAST)))
                self._ends[number] = high
        if starts:
            self._consumer.assign(starts)
            self._read({tp.partition for tp in starts})
            self._consumer.unassign()
        return bool(starts)

    def close(self) -> None:
        """Release the connection."""
        self._consumer.close()

    def _read(self, left: set[int]) -> None:
        until_s = time.monotonic() + TIMEOUT_S
        while left and (left_s := until_s - time.monotonic()) > 0:
            message = self._consumer.poll(min(left_s, 0.5))
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._add(message)
                # While records are appended, the event below may never come. The last offset may be a marker's.
                if (message.offset() or 0) + 2 >= self._ends.get(message.partition() or 0, 0):
                    left.discard(message.partition() or 0)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
                left.discard(message.partition())
            else:
                raise KafkaException(error)
        # An open transaction may hold back the end: the next call reads from there.
        for shard in left:
            self._ends[shard] = -1

    def _add(self, message: Message) -> None:
        shard, key, value = message.partition(), message.key(), message.value()
        if shard is None or value is None:
            return
        try:
            if key == key_of(shard):
                self.newest[shard] = self.newest[shard]._replace(positions=_decode_positions(value))
            elif key == f'["shard",{shard}]'.encode():
                self.newest[shard] = self.newest[shard]._replace(shard=_decode_shard(value))
        except msgspec.DecodeError:
            return  # the loop reports it
