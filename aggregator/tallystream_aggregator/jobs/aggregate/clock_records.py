"""Appends clock records to partitions of `metrics`, when `stream.clock_records` says so."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.stream.clock_records import ClockTimer
from tallystream_aggregator.table.decode import CLOCK_KEY, clock_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confluent_kafka import KafkaError

    from tallystream_aggregator.stream.broker import Place

log = logging.getLogger(__name__)

TIMEOUT_S = 1.0
"""The time for one request for the ends: the caller has other things to do."""
POLLS = 3
"""How often the ends are read in the time after which a partition counts as quiet."""


class ClockRecords:
    """Appends clock records with the wall clock of this process. `has_living` tells whether a life may be living.

    Delivery: at most once, or twice. A partition whose record was lost gets another one after the same time.
    """

    def __init__(self, kafka: Mapping[str, str], has_living: Callable[[], bool]) -> None:
        self._has_living = has_living
        self._admin = clients.admin(kafka)
        # An idempotent producer would wait half a second for its ID, and a second clock record changes nothing.
        self._producer = RecordProducer(kafka, timeout=10.0, idempotent=False)
        self._timer = ClockTimer()
        self._next_s = 0.0

    def poll(self, partitions: Sequence[Place]) -> None:
        """Append a record to those of `partitions` that need one. Call it several times a second.

        It does not wait for the records. It logs those that were not acknowledged since the last call.
        """
        self._producer.poll()
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + ClockTimer.quiet_s(len(partitions)) / POLLS
        try:
            ends = self._ends(partitions)
        except KafkaException as error:
            log.debug("cannot read the ends of the topics: %s", error)
            return
        self.send(self._timer.due(ends, now_s, living=self._has_living()))

    def send(self, partitions: Iterable[Place]) -> None:
        """Append a record to each of `partitions`. Does not wait for the broker: `poll` logs failures."""
        self._producer.send(self._records(partitions), _log_failure)

    def deliver(self, partitions: Iterable[Place]) -> None:
        """Append a record to each of `partitions`, and return when the broker has acknowledged all of them.

        Raises:
            KafkaException: the broker did not acknowledge them in time.
        """
        self._producer.deliver(self._records(partitions))

    def _ends(self, partitions: Iterable[Place]) -> dict[Place, int]:
        wanted = {place: TopicPartition(place.topic, place.partition) for place in partitions}
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        found = self._admin.list_offsets(dict.fromkeys(wanted.values(), latest), request_timeout=TIMEOUT_S)
        ends = {(one.topic, one.partition): future for one, future in found.items()}
        return {place: ends[place.topic, place.partition].result().offset for place in wanted}

    def _records(self, partitions: Iterable[Place]) -> Iterable[ProducerRecord]:
        value = clock_value(int(time.time() * 1000))
        return (ProducerRecord(place.topic, CLOCK_KEY, value, place.partition) for place in partitions)


def _log_failure(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        log.warning("cannot append a clock record; silent lives are found at the next record: %s", error)
