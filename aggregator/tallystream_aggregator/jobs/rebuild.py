"""`tallystream rebuild`: gives a table more shards, or other tags of its sums, while no aggregator runs.

Without either it publishes all sums and rows again, as after the topic `metrics-agg` or `metrics-shards` was lost.

It takes the lease and a generation, as an aggregator does, so none can run beside it. It needs no checkpoint and no
Spark: the table is read from `metrics-table`, and written there again in one transaction. The next start of the
aggregator makes its checkpoint of that.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.generations import Generations
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.lease import GROUP, SESSION_S, Lease, LeaseError
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics, create_topics, require_partitions
from tallystream_aggregator.stream.broker import BrokerError, StoppedError
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.kafka.calls import Timeouts
from tallystream_aggregator.stream.positions import LoopId, by_topic, visible_row
from tallystream_aggregator.stream.reshard import NoTableError, Resharder
from tallystream_aggregator.table.limits import MAX_SHARDS, TableSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.shutdown import StopRequest
    from tallystream_aggregator.table.sum_tags import SumTags

WAIT_S = 3 * SESSION_S
"""How long it waits for the lease. An aggregator that died has lost it by then."""


@dataclass(frozen=True, slots=True)
class RebuildSettings:
    """Settings of `tallystream rebuild`. What is None stays as it is: the number of `shards`, the tags of the sums.

    If both are None, everything is published again.

    `timeout_s` is the longest time of the transaction.
    """

    cluster: clients.Cluster
    shards: int | None = None
    sum_tags: SumTags | None = None
    timeout_s: float = 900.0

    def __post_init__(self) -> None:
        if self.shards is not None and not 1 <= self.shards <= MAX_SHARDS:
            raise ConfigError("--shards", self.shards, f"give a whole number from 1 to {MAX_SHARDS}")
        if not self.timeout_s >= 1:  # also nan
            raise ConfigError("--timeout", self.timeout_s, "give a number of seconds, 1 or more")


def run(settings: RebuildSettings, say: Callable[[str], object], stop: StopRequest) -> bool:
    """Change the table, and return True, or False if `stop` was set before. Then nothing has changed.

    Delivery: the table has its earlier layout or the new one, whatever is killed.

    Raises:
        ConfigError: the table has more shards, a topic has too few partitions, or counts would be lost.
        LeaseError: an aggregator is active.
        RejectedError: the user may not write a topic, or `timeout_s` is more than the brokers allow.
        TallystreamError: there is no table, or the broker can't be reached. Nothing has changed, or everything: the
            next call says so.
    """
    topics, kafka = Topics(settings.cluster.topic_prefix), settings.cluster.options
    check_login(kafka)
    timeouts = Timeouts(commit_s=settings.timeout_s, transaction_s=settings.timeout_s)
    with clients.broker_errors(settings.cluster.bootstrap_servers), ExitStack() as stack:
        broker = KafkaBroker(kafka, Selection(topics.metrics), clients.READING, timeouts)
        first = visible_row(broker, LoopId(topics).rows, 0)
        if first is None or first.otlp is None:  # release 0.1 has written it, which leaves settings out
            raise NoTableError(f"topic {topics.table}: it has no positions of a table; start the aggregator first.")
        lease = Lease(topics.ledger, kafka, prefix=topics.prefix)
        stack.callback(lease.close)
        until_s = time.monotonic() + WAIT_S
        if not lease.wait(stopped=lambda: stop.is_set() or time.monotonic() > until_s):
            if stop.is_set():
                return False
            remedy = f"an aggregator is active (consumer group {topics.prefix}{GROUP}); stop it, and run this again."
            raise LeaseError(f"lease: {remedy}")
        shards = max(settings.shards or 1, first.of)
        require_partitions(clients.admin(kafka), topics, shards=shards)
        create_topics(clients.admin(kafka), topics, shards=shards, only=[topics.shards])
        table = first.settings(TableSettings())
        opened = LedgerRow(
            shards=first.of,
            forget_after_ms=table.forget_after_ms,
            max_table_bytes=table.max_table_bytes,
            otlp=list(table.otlp_topics),
        )
        generations = stack.enter_context(closing(Generations(broker, topics, shards=first.of)))
        generation = generations.take(opened)
        resharder = Resharder(broker, topics, table, stopped=stop.is_set, say=say)
        try:
            done = resharder.run((generation, 0), shards=settings.shards, sum_tags=settings.sum_tags)
            changed = msgspec.structs.replace(opened, end=by_topic(done.positions), shards=done.new.shards)
            generations.change(changed, done.records)
        except StoppedError:
            return False
        except BrokerError as error:
            raise BrokerError(f"{error} The table is as it was, or has changed as a whole: run this again.") from error
    say(f"the table had {done.old}; it has {done.new} now")
    say("the next start of the aggregator continues it; leave out --shards, --drop-tag and --keep-tags")
    return True
