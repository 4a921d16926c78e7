"""Wakes shards that have no records, so that they find silent lives.

Spark runs a shard only in batches that have records of it. Without these wake-ups, lives that fall silent while no
instance publishes, or while no aggregator runs, would count as living until the next record of the shard.
"""

from __future__ import annotations

import logging
import time
from itertools import count
from typing import TYPE_CHECKING

from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from confluent_kafka import KafkaError

log = logging.getLogger(__name__)

INSTANCE = "tallystream-aggregator"
"""An instance ID without metrics: its tombstones change no sum. The same holds for this ID with a number behind it."""

GRACE_MS, REPEAT_MS = 500, 5_000
"""The wait for a record after a shard is due, until it is woken; and the time until it is woken again. In ms."""


class WakeUpTimer:
    """Tells which shards are due and have no records. `due` returns the due times by shard, in epoch ms.

    A shard that stays due is late again every `REPEAT_MS`, as the broker may have been unavailable.
    """

    def __init__(self, due: Callable[[], Mapping[int, int]], now: Callable[[], float] = time.time) -> None:
        self._due, self._now = due, now
        self._woken_ms: dict[int, float] = {}

    def late(self) -> list[int]:
        """Return the shards that must be woken now. Call it several times a second."""
        now_ms = self._now() * 1000
        late = [shard for shard, due_ms in self._due().items() if self._is_late(shard, due_ms, now_ms)]
        self._woken_ms |= dict.fromkeys(late, now_ms)
        return late

    def _is_late(self, shard: int, due_ms: int, now_ms: float) -> bool:
        woken_ms = self._woken_ms.get(shard, 0.0)
        if woken_ms > now_ms:  # the clock was set back
            woken_ms = 0.0
        return now_ms >= due_ms + GRACE_MS and (due_ms > woken_ms or now_ms >= woken_ms + REPEAT_MS)


class WakeUps:
    """Wakes shards of a table of `shards` shards, each by a tombstone. `timeout` is in seconds.

    One partition is enough: a shard then checks its lives of all partitions.
    """

    def __init__(self, kafka: Mapping[str, str], *, shards: int, timeout: float = 10.0) -> None:
        self._instances = instances(shards)
        # A repeated tombstone changes nothing, and an idempotent producer would wait half a second for its ID.
        self._producer = RecordProducer(kafka, timeout=timeout, idempotent=False)

    def send(self, topic: str, partition: int, shards: Iterable[int]) -> None:
        """Send a tombstone for each of `shards`. Does not wait for the broker: `poll` logs failures."""
        self._producer.send(self._tombstones(topic, partition, shards), _log_failure)

    def deliver(self, topic: str, partition: int, shards: Iterable[int]) -> None:
        """Send a tombstone for each of `shards`, and return when the broker has acknowledged all of them.

        Raises:
            KafkaException: the broker did not acknowledge them in time.
        """
        self._producer.deliver(self._tombstones(topic, partition, shards))

    def poll(self) -> None:
        """Log the tombstones that were not acknowledged since the last call. Call it several times a second."""
        self._producer.poll()

    def _tombstones(self, topic: str, partition: int, shards: Iterable[int]) -> Iterable[ProducerRecord]:
        return (ProducerRecord(topic, self._instances[shard].encode(), None, partition) for shard in shards)


def _log_failure(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        log.warning("cannot wake the query; silent lives are found at the next record: %s", error)


def instances(shards: int) -> dict[int, str]:
    """Return an instance ID for each shard. One of them is `INSTANCE`."""
    found: dict[int, str] = {}
    for number in count():
        instance = f"{INSTANCE}-{number}" if number else INSTANCE
        found.setdefault(shard_of(instance.encode(), shards), instance)
        if len(found) == shards:
            return found
    raise AssertionError
