"""The active writer, from the moment it has the lease: its epoch, its commits of offsets, and its repairs."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator.jobs.aggregate.clock_records import ClockRecords
from tallystream_aggregator.jobs.aggregate.offset_commits import OffsetCommits
from tallystream_aggregator.jobs.aggregate.repair import Repair, TopicWatch, last_checked
from tallystream_aggregator.kafka import clients, ledger
from tallystream_aggregator.kafka.groups import GroupCommitter
from tallystream_aggregator.kafka.ledger import epochs_of, highest_on
from tallystream_aggregator.kafka.start_position import resolve
from tallystream_aggregator.kafka.topics import require_append_time
from tallystream_aggregator.repair_request import request_path
from tallystream_aggregator.spark.checkpoint import TopicIdentity, last_begun, last_committed, store_first
from tallystream_aggregator.spark.query.settings import GROUP
from tallystream_aggregator.spark.query.start import initial_state_of, start_position
from tallystream_aggregator.stream.broker import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tallystream_aggregator.kafka.lease import Lease
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sharding import Sharding
    from tallystream_aggregator.spark.query.settings import AggregateSettings

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 5.0
"""Seconds between two checks of the topics: whether they are still the same, and what a replaced writer wrote."""


class Writer:
    """Takes a new epoch. `begin` are the offsets at which a new table begins, empty for one that exists.

    `has_living` tells whether a life may be living.

    Raises:
        ConfigError: the table can't begin with these settings.
        TallystreamError: a topic that is read was deleted and created again.
        KafkaException: the broker did not answer.
    """

    def __init__(
        self,
        settings: AggregateSettings,
        topics: Topics,
        kafka: Mapping[str, str],
        lease: Lease,
        *,
        sharding: Sharding,
        has_living: Callable[[], bool],
    ) -> None:
        self._lease, self._kafka = lease, kafka
        shards = sharding.shards
        self.begin, partial = start_position(settings, topics, kafka)
        store_first(settings.checkpoint, self.begin)
        self._selection = settings.selection(topics)
        self._read = read = self._selection.find(kafka)
        require_append_time(clients.admin(kafka), read)
        log.info("reading %s", ", ".join(read))
        remedy = "begin a new table with a new --checkpoint and --from earliest"
        self._identity = TopicIdentity(settings.checkpoint, kafka, remedy=remedy)
        if self.begin:
            self._identity.note(read)
        else:
            self._identity.check(read)
        rows = ledger.read_rows(topics.ledger, kafka)
        self.epoch = _next_epoch(rows, topics, kafka)
        lease.set_epoch(self.epoch)
        self._ends = resolve("latest", read, GROUP, topics.ledger, kafka) if settings.catch_up else None
        self._clock_records = ClockRecords(kafka, has_living)
        epochs = epochs_of(topics.ledger, kafka)
        checked = last_checked(rows)
        table, agg = (
            TopicWatch(
                topic,
                kafka,
                epochs,
                epoch=self.epoch,
                last_begun=lambda: last_begun(settings.checkpoint),
                checked=checked,
            )
            for topic in (topics.table, topics.agg)
        )
        self._repair = Repair(
            table,
            agg,
            request_path(settings.checkpoint),
            epoch=self.epoch,
            shards=shards,
            wake=lambda: self._clock_records.send(self._own[:1]),
        )
        self._checked_s: float | None = None
        if not self.begin or initial_state_of(settings):
            # To find lives that fell silent meanwhile, and to publish a rebuilt table.
            self._clock_records.deliver(self._own)
        opened = ledger.LedgerRow(
            kind="opened",
            query=ledger.QUERY,
            epoch=self.epoch,
            ts=int(time.time() * 1000),
            start=self.begin,
            partial=partial,
            shards=shards,
            forget_after_ms=settings.table.forget_after_ms,
            drop_tags=sharding.sum_tags.drop,
            keep_tags=sharding.sum_tags.keep,
        )
        writer = ledger.LedgerWriter(topics.ledger, kafka)
        writer.write([opened])
        self._committer = GroupCommitter(kafka, settings.topic_prefix + GROUP)
        if self.begin:
            self._committer.keep(self._selection.reads, topic=next(iter(read)))
            self._committer.begin(self.begin)
        self._offset_commits = OffsetCommits(
            settings.checkpoint,
            self._committer,
            writer,
            epoch=self.epoch,
            last=_last(rows, settings.checkpoint),
            checked=lambda: self._repair.checked(topics.table, topics.agg),
            otlp=self._selection.otlp,
        )
        self._offset_commits.catch_up()

    def after_batch(self) -> bool:
        """Commit what has finished, and check the topics. Return True when `--catch-up` has reached its end.

        Call it several times a second.

        Raises:
            LeaseError: another aggregator has taken over.
            ConfigError: a topic has appeared that the pattern matches, without append times.
            TallystreamError: a topic that is read was deleted and created again.
        """
        if self._ends is None:  # with --catch-up, no record of our own may stay on the topic
            self._clock_records.poll(self._own)
        self._lease.check()
        self._offset_commits.catch_up()
        if self._checked_s is None or time.monotonic() - self._checked_s > CHECK_INTERVAL_S:
            try:
                self._check_topics()
                self._repair.poll()
            except (KafkaException, OSError) as error:
                log.warning("cannot check the topics; trying again: %s", error)
            self._checked_s = time.monotonic()
        return self._ends is not None and self._offset_commits.reached(self._ends)

    def _check_topics(self) -> None:
        read = self._selection.existing(self._kafka)
        self._read = read or self._read
        new = self._identity.check(read) if read else []  # Spark reports topics that no longer exist
        if new:
            require_append_time(clients.admin(self._kafka), new)
            log.info("reading %s, too", ", ".join(new))

    @property
    def _own(self) -> list[Place]:
        """The partitions that get clock records. OTLP topics belong to others, which may not expect them there."""
        own = {topic: partitions for topic, partitions in self._read.items() if topic not in self._selection.otlp}
        return [Place(topic, partition) for topic, partitions in own.items() for partition in partitions]

    def close(self) -> None:
        """Release the connections."""
        self._committer.close()
        self._repair.close()


def _next_epoch(rows: Sequence[ledger.LedgerRow], topics: Topics, kafka: Mapping[str, str]) -> int:
    highest = ledger.highest_epoch(rows)
    if highest is None:  # The ledger is empty or deleted. The topics have the epochs of their records.
        highest = highest_on((topics.agg, topics.table), kafka)
    return highest + 1


def _last(rows: Sequence[ledger.LedgerRow], checkpoint: Path) -> int:
    """Return the last batch of this checkpoint that the ledger has, -1 for none."""
    done = last_committed(checkpoint)
    if done is None:
        return -1
    mine = [row for row in rows if row.query == ledger.QUERY]
    opened = max((number for number, row in enumerate(mine) if row.kind == "opened" and row.start), default=0)
    # A higher number in the ledger is from another checkpoint: rows are written only after a batch is finished.
    return min(done[0], max((row.batch for row in mine[opened:]), default=-1))
