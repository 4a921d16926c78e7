"""Wakes shards that have no records, so that they find silent lives.

Spark runs a shard only in batches that have records of it. Without these wake-ups, lives that fall silent while no
instance publishes, or while no aggregator runs, would count as living until the next record of the shard.
"""

from __future__ import annotations

import logging
import time
from itertools import count
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator.kafka.producer import ProducerRecord, deliver, producer_for
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

INSTANCE = "tallystream-aggregator"
"""An instance ID without metrics: its tombstones change no sum. The same holds for this ID with a number behind it."""

GRACE_MS, REPEAT_MS = 500, 5_000
"""The wait for a record after a shard is due, until it is woken; and the time until it is woken again. In ms."""


class WakeUpTimer:
    """Wakes the shards that are due and have no records. `due` returns the due times by shard, in epoch ms.

    Delivery: a shard that stays due is woken again every `REPEAT_MS`, as the broker may have been unavailable.
    """

    def __init__(
        self,
        due: Callable[[], Mapping[int, int]],
        wake: Callable[[list[int]], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._due, self._wake, self._now = due, wake, now
        self._woken_ms: dict[int, float] = {}

    def poll(self) -> None:
        """Wake the shards that are due. Call it several times a second."""
        now_ms = self._now() * 1000
        late = [shard for shard, due_ms in self._due().items() if self._is_late(shard, due_ms, now_ms)]
        if not late:
            return
        self._woken_ms |= dict.fromkeys(late, now_ms)
        try:
            self._wake(late)
        except KafkaException as error:
            log.warning("cannot wake the query; silent lives are found at the next record: %s", error)

    def _is_late(self, shard: int, due_ms: int, now_ms: float) -> bool:
        woken_ms = self._woken_ms.get(shard, 0.0)
        if woken_ms > now_ms:  # the clock was set back
            woken_ms = 0.0
        return now_ms >= due_ms + GRACE_MS and (due_ms > woken_ms or now_ms >= woken_ms + REPEAT_MS)


def instances(shards: int) -> dict[int, str]:
    """Return an instance ID for each shard. One of them is `INSTANCE`."""
    found: dict[int, str] = {}
    for number in count():
        instance = f"{INSTANCE}-{number}" if number else INSTANCE
        found.setdefault(shard_of(instance.encode(), shards), instance)
        if len(found) == shards:
            return found
    raise AssertionError


def wake(
    topic: str, partition: int, shards: Iterable[int], kafka: Mapping[str, str], *, of: int = 1, timeout: float = 10.0
) -> None:
    """Append a tombstone for each of `shards`, of a table of `of` shards. Return when the broker has acknowledged them.

    One partition is enough: a shard then checks its lives of all partitions. `timeout` is in seconds.

    Raises:
        KafkaException: the broker did not acknowledge them in time.
    """
    # Not idempotent: a repeated tombstone changes nothing, and an idempotent producer waits half a second for its ID.
    producer = producer_for(kafka, timeout=timeout, idempotent=False)
    ids = instances(of)
    records = (ProducerRecord(topic, ids[shard].encode(), None, partition) for shard in shards)
    deliver(producer, records, timeout=timeout)
