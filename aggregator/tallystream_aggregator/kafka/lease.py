"""The lease: one of several aggregators of a system, or shippers to a store, works. It is an assignment in a group.

Every aggregator joins the group, and the group assigns one partition, that of the ledger, to one of them. The assignor
is sticky: the holder keeps the partition until it leaves, or until it sends no heartbeat for `SESSION_S`. A thread of
librdkafka sends the heartbeats, so a long call does not lose the lease, but a stopped process does. Shippers to a store
do the same in a group of their own, with the partition of `metrics-agg`.

A stopped writer notices late that it has lost the lease. So each writer takes a generation, and Kafka refuses what a
replaced writer publishes (stream.epochs). While the broker is unavailable no aggregator has the lease. The writer
continues, and ends if another one has taken a higher generation meanwhile (jobs.aggregate.generations).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Consumer, TopicPartition

log = logging.getLogger(__name__)

GROUP = "tallystream-aggregator-lease"
SESSION_S = 6.0
"""Seconds without a heartbeat after which the lease is free: the minimum that brokers allow by default."""

TIMEOUT_S = 5.0
"""The time for one request of the group's offsets, in seconds."""

_REJECTED = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}


class LeaseError(TallystreamError):
    """Another aggregator has the lease."""


class Lease:
    """One member's claim to the lease of a group, from now on: it has partition 0 of `topic`. For one thread.

    `prefix` is that of the topics. `others` are topics whose offsets the holder commits, too. `times` counts how often
    it got the lease: somebody else may have had it meanwhile.
    """

    def __init__(
        self,
        topic: str,
        kafka: Mapping[str, str],
        *,
        prefix: str = "",
        group: str = GROUP,
        others: Sequence[str] = (),
    ) -> None:
        self._topic = topic
        self._held = False
        self.times = 0
        self._consumer = clients.consumer(
            {
                **kafka,
                "group.id": prefix + group,
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": int(SESSION_S * 1000),
                "heartbeat.interval.ms": int(SESSION_S * 1000 / 4),
                "max.poll.interval.ms": 86_400_000,
            }
        )
        self._consumer.subscribe(
            [topic, *others], on_assign=self._assigned, on_revoke=self._on_lost, on_lost=self._on_lost
        )
        self._consumer.poll(0)

    @property
    def held(self) -> bool:
        """Whether this aggregator has the lease, by the last call of `wait` or `check`."""
        return self._held

    def wait(self, *, stopped: Callable[[], bool]) -> bool:
        """Wait for the lease. Return True when it is held, False when a stop was requested before."""
        says_s = time.monotonic() + 1.0
        while not self._held:
            if stopped():
                return False
            self._poll(0.1)
            if time.monotonic() > says_s:
                says_s = float("inf")
                log.info("waiting for the lease: another aggregator has it, or had it a moment ago")
        return True

    def check(self, seconds: float = 0.0) -> None:
        """Keep the claim, for some seconds. Call it several times a second, and then look at `held`."""
        until = time.monotonic() + seconds
        self._poll(seconds)
        while (left_s := until - time.monotonic()) >= 0.001:  # librdkafka would not wait for a part of a millisecond
            self._poll(left_s)

    def committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return those of these partitions of which the group has an offset, with it.

        Kafka deletes the offsets of a topic with the topic, so one that was created again has none.

        Raises:
            KafkaException: the broker did not answer in time, or forbids it.
        """
        return [one for one in self._consumer.committed(partitions, timeout=TIMEOUT_S) if one.offset >= 0]

    def commit(self, offsets: list[TopicPartition], *, wait: bool) -> None:
        """Commit offsets of the group, and `wait` for the answer.

        Raises:
            KafkaException: the broker did not answer in time, or forbids it.
        """
        if wait:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        else:
            self._consumer.commit(offsets=offsets)

    def close(self) -> None:
        """Release the lease."""
        self._consumer.close()

    def _poll(self, timeout: float) -> None:
        message = self._consumer.poll(timeout)
        error = None if message is None else message.error()
        if error is None:
            return
        if error.fatal() or error.code() in _REJECTED:
            raise KafkaException(error)
        log.info("lease: %s", error.str())  # the broker is unavailable, or the ledger has no leader: wait

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)  # this consumer reads nothing
        if any(one.topic == self._topic for one in partitions):
            self._held = True
            self.times += 1

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            consumer.incremental_unassign(partitions)
        if any(one.topic == self._topic for one in partitions):
            self._held = False
