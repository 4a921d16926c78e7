"""Follows the loops of a query: epochs, health, offsets for people's tools, and when a catch-up is done.

Nothing here decides about sums. If the broker does not answer, the next call tries again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from tallystream.log_throttle import RateLimitFilter
from tallystream_aggregator.jobs.aggregate.clock_records import ClockTimer
from tallystream_aggregator.spark.epochs.query import rows_of
from tallystream_aggregator.stream.broker import BrokerError, LostRecordsError, Place
from tallystream_aggregator.stream.positions import by_place, by_topic, lowest, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Consumer
    from pyspark.sql.streaming.query import StreamingQuery

    from tallystream_aggregator.health import Health
    from tallystream_aggregator.jobs.aggregate.table_tail import TableTail
    from tallystream_aggregator.kafka.topic_selection import Offsets
    from tallystream_aggregator.stream.broker import Positions
    from tallystream_aggregator.stream.kafka.broker import KafkaBroker

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

GROUP = "tallystream-aggregator"
"""The consumer group of the aggregator's offsets, without the prefix of the topics, which it has, too."""

WATCH_S = 0.5
"""Seconds between two looks at the ends of the partitions."""


class QueryWatch:
    """Follows one query after the other of a driver. For one thread.

    `broker` tells the ends of partitions. With `ends`, `is_done` tells whether all records up to them are in the
    published sums. `append_clocks` appends clock records to the partitions that need one, which are none of the topics
    `otlp`. `commit_offsets` stores the positions in the consumer group, for people's tools: the aggregator reads from
    positions of its own.
    """

    def __init__(
        self,
        tail: TableTail,
        *,
        broker: KafkaBroker,
        append_clocks: Callable[[Sequence[Place]], None],
        commit_offsets: Callable[[Positions], None],
        health: Health,
        otlp: Sequence[str],
        ends: Offsets | None = None,
    ) -> None:
        self._tail, self._broker, self._append_clocks = tail, broker, append_clocks
        self._commit_offsets, self._health, self._otlp, self._ends = commit_offsets, health, otlp, ends
        self._generation = 0
        self._watched_s = float("-inf")
        self._published: Positions = {}
        self._committed: Positions = {}
        self._timer = ClockTimer()
        self._was_claimed, self._records = False, 0
        self.batch: int | None = None
        """The last epoch of the present query that has finished, None if none has. Spark calls it a batch."""
        self.stopped = False
        """Whether its epoch saw the request to stop, so it has stored everything that was published."""
        self.positions: Offsets = {}
        """What all shards have published at the end of the last epoch that every shard finished."""

    def reset(self, generation: int) -> None:
        """Note that a query of this generation starts, or has failed: it is not ready."""
        self._generation, self.batch, self.stopped = generation, None, False
        self._health.status.run()

    def look(self, query: StreamingQuery) -> None:
        """Note an epoch that has finished since the last look.

        Spark's progress has the newest one. One that ended just before it may not be seen: a look takes less than an
        epoch.

        Raises:
            Py4JError: Spark's JVM has ended.
        """
        progress = query.lastProgress
        if progress is None or progress["batchId"] == self.batch:
            return
        self.batch = progress["batchId"]
        rows = rows_of(progress)
        self.stopped = bool(rows) and all(row.stopped for row in rows)
        self._health.progress.epoch(rows)
        if all(row.positions for row in rows):
            self._health.status.checked()
            shards = max(1, len(self._tail.places) - 1)  # the combiner is the last one
            self.positions = by_topic(lowest(by_place(row.positions) for row in rows if row.shard < shards))
        else:  # a loop waits for the broker, or is not yet where it had published
            self._health.status.run()

    @property
    def is_ready(self) -> bool:
        """Whether the loop of every shard works in the present generation.

        It publishes its claim first, and then makes its table again, which may take minutes.
        """
        return self._is_claimed and not any(row.restoring for row in self._tail.positions.values())

    @property
    def _is_claimed(self) -> bool:
        claims = [row.claim[0] for row in self._tail.positions.values()]
        return len(claims) == len(self._tail.places) and min(claims) == self._generation

    @property
    def is_done(self) -> bool:
        """Whether the end of a catch-up is reached, and every loop has begun: then it has looked at its topics."""
        if self._ends is None or not self.is_ready:
            return False
        return all(self._published.get(place, -1) >= end for place, end in by_place(self._ends).items())

    def follow(self, *, last: bool = False) -> None:
        """Do what is due. Call it several times a second, and once after the end of the query with `last`."""
        now_s = time.monotonic()
        if not last and now_s - self._watched_s < WATCH_S:
            return
        self._watched_s = now_s
        try:
            ends = self._broker.ends([*self._tail.places, *self._published])
            self._watch(ends)
            if not last:  # else nothing reads a record that is appended now
                self._clock(ends, now_s)
            if self._published != self._committed:  # at the end: nothing else needs the group
                self._commit_offsets(self._published)
                self._committed = self._published
        except (KafkaException, BrokerError, LostRecordsError) as error:
            log.info("the positions can't be read or committed now: %s", error)

    def _watch(self, ends: Positions) -> None:
        moved = self._tail.poll(ends)
        rows = self._tail.positions
        last = rows.get(len(self._tail.places) - 1)  # of the only shard, or of the combiner
        if last is not None and (found := summed(last)):
            self._published = found
        shards = list(self._tail.shards.values())
        records = sum(row.records for row in shards)
        if moved and self.is_ready:
            self._health.status.checked()
        self._was_claimed = self._was_claimed or self._is_claimed
        if not self._was_claimed:
            self._records = records  # of earlier processes
        self._health.progress.watched(
            self._published,
            {place: max(ends.get(place, 0), at) for place, at in self._published.items()},
            shards,
            records=records - self._records,
            generation=max((row.claim[0] for row in rows.values()), default=0),
        )

    def _clock(self, ends: Mapping[Place, int], now_s: float) -> None:
        """Append clock records. OTLP topics belong to others, which may not expect clock records there."""
        if self._ends is None:  # with --catch-up, no record of our own may stay on the topic
            own = {place: ends[place] for place in self._published if place in ends and place.topic not in self._otlp}
            self._append_clocks(self._timer.due(own, now_s))


def commit_offsets(group: Consumer, positions: Positions) -> None:
    """Commit positions to the group of a consumer. The group has no members.

    An admin client would do, but one whose request about a group got no answer can end its process (librdkafka's issue
    4605), or answer no more.

    Raises:
        KafkaException: the commit failed.
    """
    group.commit(offsets=[TopicPartition(*place, at) for place, at in positions.items()], asynchronous=False)
