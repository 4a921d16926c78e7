"""Wake a query: Spark looks at its timers in a batch only, and it runs batches for records only.

Without it, lives that fall silent while nobody publishes, or that fell silent while no aggregator ran, would count as
living until somebody's next record.
"""

from __future__ import annotations

import logging
import time
from itertools import count
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream.aggregator.delivering import Outgoing, deliver, producer_for
from tallystream.aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

INSTANCE = "tallystream-aggregator"
"""An instance ID that publishes nothing else: a tombstone of it takes nothing out of any sum. IDs with a number too."""


GRACE_MS, AGAIN_MS = 500, 5_000
"""How late a timer may be before a record is appended for it, as somebody's record mostly comes first; and another."""


class Alarm:
    """Wakes a query whose timer is due while no records come. `due` returns that time in epoch ms, or None.

    Delivery: a timer is looked at within `AGAIN_MS` of a broker's return, if it was away.
    """

    def __init__(
        self, due: Callable[[], int | None], wake: Callable[[], None], now: Callable[[], float] = time.time
    ) -> None:
        self._due, self._wake, self._now = due, wake, now
        self._rang_ms = 0.0

    def look(self) -> None:
        """Wake the query if it is time; to be called several times a second."""
        due, now_ms = self._due(), self._now() * 1000
        if due is None or now_ms < due + GRACE_MS:
            return
        if due <= self._rang_ms and now_ms < self._rang_ms + AGAIN_MS:  # that it was looked at is not known yet
            return
        self._rang_ms = now_ms
        try:
            self._wake()
        except KafkaException as error:
            log.warning("silence is looked for at the next record: %s", error)


def instances(shards: int) -> list[str]:
    """Return an instance ID for each shard; the first one is `INSTANCE`."""
    found: dict[int, str] = {}
    for number in count():
        instance = f"{INSTANCE}-{number}" if number else INSTANCE
        found.setdefault(shard_of(instance.encode(), shards), instance)
        if len(found) == shards:
            return list(found.values())
    raise AssertionError


def wake(
    partitions: Iterable[tuple[str, int]], kafka: Mapping[str, str], shards: int = 1, *, timeout: float = 10.0
) -> None:
    """Append a tombstone for each of the shards to each (topic, partition) that is read: each has a clock of its own.

    A shard that was rebuilt has no timer before its first batch, so each one needs a record of its own. Returns when
    the broker has them. `timeout` is in seconds.

    Raises:
        KafkaException: the broker did not take it in time.
    """
    # Not idempotent: a tombstone sent twice changes nothing, and such a producer first waits half a second for its ID.
    producer = producer_for(kafka, timeout=timeout, idempotent=False)
    keys = [instance.encode() for instance in instances(shards)]
    records = (Outgoing(topic, key, None, partition) for topic, partition in partitions for key in keys)
    deliver(producer, records, timeout=timeout)
