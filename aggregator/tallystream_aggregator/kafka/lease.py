"""The lease: of several aggregators of one system, one writes. It is the membership of a consumer group.

Every aggregator joins the group, and the group has one partition to give (the ledger's, which nobody reads by it). The
assignor is sticky: who has it keeps it until it leaves, or is not heard from for `SESSION_S`. Heartbeats are sent by
librdkafka's own thread, so a long batch loses nothing; a stopped process does.

The lease alone excludes nobody: a writer that was stopped finds out late. So each one takes an epoch, recorded in the
ledger, and what a lower epoch writes after a higher one changes nothing (shipping.fence, jobs.aggregate.repair). A
broker that is unavailable takes the lease from everybody: the writer goes on while no higher epoch is in the ledger.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients, ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Consumer, TopicPartition

log = logging.getLogger(__name__)

GROUP = "tallystream-aggregator-lease"
SESSION_S = 6.0
"""Seconds without a heartbeat after which the lease is free: the least that brokers allow by default."""

REFUSE_S = 3 * SESSION_S
"""Who has not got it after this, and does not stand by, gives up: a holder that died would have been noticed."""

LOOK_S = 2.0
_REFUSED = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}


class LeaseError(TallystreamError):
    """Another aggregator has the lease."""


class Lease:
    """One aggregator's claim; for one thread. `prefix` is that of the topics. Nothing is asked before `join`."""

    def __init__(
        self,
        ledger_topic: str,
        kafka: Mapping[str, str],
        *,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger_topic
        self._kafka = kafka
        self._clock = clock
        self._held = False
        self._epoch = 0
        self._looked = 0.0
        self._consumer = clients.consumer(
            {
                **kafka,
                "group.id": prefix + GROUP,
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": int(SESSION_S * 1000),
                "heartbeat.interval.ms": int(SESSION_S * 1000 / 4),
                "max.poll.interval.ms": 86_400_000,
            }
        )

    def join(self) -> None:
        """Ask for the lease, and return at once."""
        self._consumer.subscribe(
            [self._ledger], on_assign=self._assigned, on_revoke=self._on_lost, on_lost=self._on_lost
        )
        self._consumer.poll(0)

    def wait(self, *, standby: bool, stopped: Callable[[], bool]) -> bool:
        """Wait for the lease; return True when it is held, False when a stop was requested before.

        Raises:
            LeaseError: another aggregator has it and lives, and we were not told to stand by.
        """
        began, told = self._clock(), False
        while not self._held:
            if stopped():
                return False
            self._poll(0.1)
            waited = self._clock() - began
            if not standby and waited > REFUSE_S:
                raise LeaseError(
                    f"lease: after {waited:.0f} s another aggregator still has it (consumer group "
                    f"{GROUP}): end that one, or wait for its end with --standby."
                )
            if not told and waited > 1.0:
                told = True
                log.info("waiting for the lease: another aggregator has it, or had it a moment ago")
        return True

    def take(self, epoch: int) -> None:
        """Store the epoch of this writer."""
        self._epoch = epoch

    def check(self) -> None:
        """Keep the claim alive; call it several times a second.

        Raises:
            LeaseError: we lost it and another aggregator has begun to write.
        """
        self._poll(0)
        if self._held or self._clock() - self._looked < LOOK_S:
            return
        self._looked = self._clock()
        try:
            highest = ledger.highest_epoch(ledger.read_rows(self._ledger, self._kafka, timeout=5)) or 0
        except (KafkaException, TallystreamError) as error:
            log.warning("the lease is lost and the ledger can't be read (%s): going on, nobody else can write", error)
            return
        if highest > self._epoch:
            raise LeaseError(
                f"lease: another aggregator took over with epoch {highest}, ours was {self._epoch}; what this one "
                "wrote after that changes nothing."
            )

    def close(self) -> None:
        """Release the lease."""
        self._consumer.close()

    def _poll(self, timeout: float) -> None:
        message = self._consumer.poll(timeout)
        error = None if message is None else message.error()
        if error is None:
            return
        if error.fatal() or error.code() in _REFUSED:
            raise KafkaException(error)
        log.info("lease: %s", error.str())  # a broker that is unavailable, or a ledger without a leader, comes back

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)  # nothing is read by it
            self._held = True

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            consumer.incremental_unassign(partitions)
            self._held = False
