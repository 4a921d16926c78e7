"""Appends clock records to partitions of `metrics`, so that time passes there though no instance publishes."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator.kafka.producer import ProducerRecord
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.kafka.producer import RecordProducer
    from tallystream_aggregator.stream.broker import Place

log = logging.getLogger(__name__)

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


def append(producer: RecordProducer, partitions: Iterable[Place]) -> None:
    """Append a clock record with the wall clock of this process to each of `partitions`, or log why it failed.

    Delivery: at most once, or twice. A partition whose record was lost gets another one after the same time.
    """
    value = clock_value(int(time.time() * 1000))
    try:
        producer.deliver(ProducerRecord(topic, CLOCK_KEY, value, partition) for topic, partition in partitions)
    except KafkaException as error:
        log.warning("cannot append a clock record; silent lives are found at the next record: %s", error.args[0])
