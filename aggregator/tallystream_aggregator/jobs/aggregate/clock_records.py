"""Appends clock records to partitions of `metrics`, so that time passes there though no instance publishes."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from tallystream.log_throttle import RateLimitFilter
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.producer import TIMEOUT_S
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import KafkaError

    from tallystream_aggregator.stream.broker import Place

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

UNMOVED_S = 1.0
"""A partition needs a clock record when its end has not moved for this many seconds, up to `MANY` partitions."""
MANY = 50
EVERY_S = 60.0
"""A partition gets a clock record at least this often: lives are forgotten at clock records alone."""


class ClockTimer:
    """Tells which partitions need a clock record, by their ends. Times are of a clock that is never set back."""

    def __init__(self) -> None:
        self._ends: dict[Place, tuple[int, float]] = {}
        self._last_s: dict[Place, float] = {}

    def due(self, ends: Mapping[Place, int], now_s: float) -> list[Place]:
        """Return the partitions that need a clock record now. `ends` are the end offsets of all of them.

        Call it several times a second. The caller appends the records.
        """
        quiet_s = UNMOVED_S * max(1.0, len(ends) / MANY)
        due = []
        for place, end in ends.items():
            before, since_s = self._ends.get(place, (end, now_s))
            if end != before:
                since_s = now_s
            if now_s - since_s >= quiet_s or now_s - self._last_s.setdefault(place, now_s) >= EVERY_S:
                due.append(place)
                since_s = self._last_s[place] = now_s
            self._ends[place] = end, since_s
        return due


class ClockRecords:
    """Appends clock records with the wall clock of this process.

    Delivery: at most once, or twice. A partition whose record was lost gets another one after the same time.
    """

    def __init__(self, kafka: Mapping[str, str]) -> None:
        # Not idempotent: a second clock record changes nothing.
        self._producer = clients.producer({**kafka, "delivery.timeout.ms": int(TIMEOUT_S * 1000)})

    def send(self, partitions: Iterable[Place]) -> None:
        """Append a record to each of `partitions`, and log those that were not acknowledged since the last call."""
        self._producer.poll(0)
        value = clock_value(int(time.time() * 1000))
        for topic, partition in partitions:
            self._producer.produce(topic, value, CLOCK_KEY, partition, on_delivery=_log_failure)


def _log_failure(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        log.warning("cannot append a clock record; silent lives are found at the next record: %s", error.str())
