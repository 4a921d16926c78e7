"""Calls to librdkafka: how long they wait, and what their errors mean for the loop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.stream.broker import BrokerError, FencedError, RejectedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.errors import TallystreamError

SLICE_S = 0.5
"""Python runs no signal handler while it waits in librdkafka, so no call waits for longer at a time."""

PAUSE_S = 0.1
"""The time between two attempts."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long calls wait for a broker, in seconds.

    `init_s` is for opening a writer, `commit_s` for a transaction, `query_s` for anything else. If `stopped` returns
    True, a call that waits ends with BrokerError. The broker ends a transaction that is open for more than
    `transaction_s`: until then it holds back all readers of its partitions.
    """

    init_s: float = 30.0
    commit_s: float = 10.0
    transaction_s: float = 30.0
    query_s: float = 10.0
    stopped: Callable[[], bool] = lambda: False

    def until(self, deadline: float, call: Callable[[float], object]) -> None:
        """Call `call` with the seconds that it may wait, again while its error can be retried and there is time.

        Raises:
            BrokerError: a stop is requested.
            KafkaException: the call failed.
        """
        while True:
            try:
                call(max(min(deadline - time.monotonic(), SLICE_S), 0.001))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise
                self.check_stop()
                time.sleep(0.01)  # some errors come at once
            else:
                return

    def check_stop(self) -> None:
        """Raise BrokerError if a stop is requested."""
        if self.stopped():
            raise BrokerError("a stop was requested before the broker had answered.")


FENCED = frozenset(
    {
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError._FENCED,  # noqa: SLF001 (librdkafka's name for it)
    }
)

REJECTED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,  # the brokers' transaction.max.timeout.ms is lower than ours
    }
)

MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
"""The errors of a topic or partition that does not exist, or that the broker does not know yet."""

OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001

LEADERLESS = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
"""The errors of a broker that is not the leader, or does not yet know the partition's end."""

TRANSIENT = LEADERLESS | frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._QUEUE_FULL,  # noqa: SLF001 (nothing is acknowledged)
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
    }
)
"""The errors of an outage. A consumer goes on by itself after them."""


def error_of(servers: str, what: str, error: KafkaError) -> TallystreamError:
    """Return the error of `stream.broker` that an error of librdkafka means. `what` is what failed, as a clause."""
    kinds = {FencedError: FENCED, RejectedError: REJECTED, UnavailableError: TRANSIENT}
    kind = next((kind for kind, codes in kinds.items() if error.code() in codes), BrokerError)
    return kind(f"broker {servers}: {what}: {error.str().rstrip('.')}.")
