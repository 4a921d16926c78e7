"""Read the offsets that Spark queries write to the ledger: the aggregator, and other jobs that write to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream_aggregator.kafka import clients, ledger
from tallystream_aggregator.kafka.topic_selection import by_partition
from tallystream_dashboards.lag.offsets import LEDGER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_dashboards.lag.offsets import PartitionId

log = logging.getLogger(__name__)

GROUPS = {ledger.QUERY: "tallystream-aggregator", "ship": "tallystream-shipper"}
"""The consumer groups of Tallystream's own queries. Another query has the group `ledger:` and its name."""

_TAIL = -2000
"""librdkafka's base for an offset relative to the end: this, minus the number of records before the end."""


_END = {
    KafkaError._PARTITION_EOF,  # noqa: SLF001 (librdkafka's names for them)
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def update(newest: dict[str, ledger.LedgerRow], rows: Iterable[ledger.LedgerRow]) -> None:
    """Set the `newest` row of each query to the last one of its highest generation."""
    for row in rows:
        before = newest.get(row.query)
        if row.kind == "epoch" and (before is None or row.generation >= before.generation):
            newest[row.query] = row


def offsets(newest: Mapping[str, ledger.LedgerRow], prefix: str = "") -> dict[str, dict[PartitionId, int]]:
    """Return the next offset to read by group and partition, from the newest row of each query."""
    return {
        prefix + GROUPS[query] if query in GROUPS else f"{LEDGER_PREFIX}{query}": by_partition(row.end)
        for query, row in newest.items()
    }


class LedgerReader:
    """A reader of the topic `metrics-ledger`, without a consumer group. A missing topic counts as empty."""

    def __init__(self, topic: str, kafka: Mapping[str, str], *, prefix: str = "") -> None:
        self._prefix = prefix
        self._newest: dict[str, ledger.LedgerRow] = {}
        self._read = False
        self._consumer = clients.reading_consumer(kafka, "tallystream-lag-ledger")
        self._consumer.assign([TopicPartition(topic, 0, _TAIL - ledger.TAIL)])

    def offsets(self) -> dict[str, dict[PartitionId, int]] | None:
        """Return the offsets by group; None until the ledger has been read to its end once. Never waits long."""
        while (message := self._consumer.poll(0.02)) is not None:
            error = message.error()
            value = message.value() if error is None else None
            if value is not None:
                update(self._newest, ledger.rows([value]))
            self._read = self._read or (error is not None and error.code() in _END)
        return offsets(self._newest, self._prefix) if self._read else None

    def close(self) -> None:
        """Close the connection; may be called again."""
        try:
            self._consumer.close()
        except KafkaException as error:
            log.debug("the connection that reads the ledger was not closed: %s", error)
