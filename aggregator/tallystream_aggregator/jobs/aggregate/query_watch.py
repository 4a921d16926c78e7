"""Follows the loops of a query: health, offsets for people's tools, the ledger, and whether a catch-up is done.

Nothing here decides about sums. If the broker does not answer, the next call tries again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.stream.broker import BrokerError
from tallystream_aggregator.stream.positions import by_place, by_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tallystream_aggregator.health import Health
    from tallystream_aggregator.jobs.aggregate.generations import Generations
    from tallystream_aggregator.jobs.aggregate.group_offsets import GroupCommitter
    from tallystream_aggregator.jobs.aggregate.table_tail import TableTail
    from tallystream_aggregator.kafka.topic_selection import Offsets
    from tallystream_aggregator.spark.epochs.listener import EpochListener
    from tallystream_aggregator.stream.broker import Broker, Place, Positions

log = logging.getLogger(__name__)

WATCH_S = 1.0
"""Seconds between two looks at the ends of `metrics-table`."""

WATCH_SOON_S = 0.2
"""The same while a query starts or catches up."""

ENDS_S = 5.0
"""Seconds between two requests of the ends of the partitions that are read."""


class QueryWatch:
    """Follows the queries of one driver. For one thread.

    `begin` is the position of the ledger's last row, or where a new table begins. With `ends`, `is_done` tells whether
    all records up to them are in the published sums. `tick` appends clock records to partitions that need one.
    """

    def __init__(
        self,
        listener: EpochListener,
        tail: TableTail,
        broker: Broker,
        committer: GroupCommitter,
        generations: Generations,
        *,
        health: Health,
        begin: Offsets,
        otlp: Sequence[str],
        ends: Offsets | None = None,
        tick: Callable[[Sequence[Place]], None] = lambda _: None,
    ) -> None:
        self._listener, self._tail, self._broker = listener, tail, broker
        self._committer, self._generations, self._health = committer, generations, health
        self._at, self._otlp, self._ends = begin, sorted(otlp), ends
        self._shards = max(1, len(tail.newest) - 1)
        self._unwritten: list[LedgerRow] = []
        self._watched_s = self._polled_s = float("-inf")
        self._bounds: Positions = {}
        self._published: Positions = {}
        self._tick = tick
        self._was_ready, self._records = False, 0
        self.state_bytes: dict[int, int] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the loop of every shard has published its claim in the present generation."""
        claims = [row.claim[0] for row, _ in self._tail.newest.values() if row is not None]
        return len(claims) == len(self._tail.newest) and min(claims) == self._generations.now

    @property
    def is_done(self) -> bool:
        """Whether the end of a catch-up is reached, and every loop has begun: then it has looked at its topics."""
        if self._ends is None or not self.is_ready:
            return False
        return all(self._published.get(place, -1) >= end for place, end in by_place(self._ends).items())

    def follow(self, *, last: bool = False) -> None:
        """Do what is due. Call it several times a second, and once after the end of the query with `last`.

        Raises:
            LeaseError: another driver has taken a generation.
        """
        now_s = time.monotonic()
        soon = self._ends is not None or not self.is_ready
        if last or now_s - self._watched_s >= (WATCH_SOON_S if soon else WATCH_S):
            self._watched_s = now_s
            try:
                self._watch(now_s)
            except (KafkaException, BrokerError) as error:
                log.info("the positions can't be read now: %s", error)
        if self._ends is None:  # with --catch-up, no record of our own may stay on the topic
            # OTLP topics belong to others, which may not expect clock records there.
            self._tick([place for place in self._published if place.topic not in self._otlp])
        self._write()

    def _watch(self, now_s: float) -> None:
        moved = self._tail.poll()
        newest = self._tail.newest
        last = newest[max(newest)].positions  # of the only shard, or of the combiner
        if last is not None and len(last.shards) in (0, len(newest) - 1):
            self._published = _lowest(map(by_place, last.shards.values() or [last.positions]))
            self._committer.commit(self._published)
        if now_s - self._polled_s >= ENDS_S:
            self._polled_s = now_s
            self._bounds = {place: found.end for place, found in self._broker.bounds(self._published).items()}
        shards = [one.shard for one in newest.values() if one.shard is not None]
        for row in shards:
            row.state_bytes = self.state_bytes.get(row.shard, 0)
        ends = {place: max(end, self._published.get(place, 0)) for place, end in self._bounds.items()}
        records = sum(row.records for row in shards)
        if self.is_ready:
            if moved:
                self._health.status.checked()
            self._was_ready = True
        elif not self._was_ready:
            self._records = records  # of earlier processes
        self._health.progress.watched(
            by_topic(self._published),
            by_topic(ends),
            shards,
            records=records - self._records,
            generation=max((found.positions.claim[0] for found in newest.values() if found.positions), default=0),
        )

    def _write(self) -> None:
        """Write a row to the ledger for each finished epoch that has moved."""
        while self._listener.finished:
            epoch = self._listener.finished.popleft()
            self.state_bytes |= {row.shard: row.state_bytes for row in epoch.rows}
            rows = [row for row in epoch.rows if row.shard < self._shards]  # without the combiner
            if len(rows) < self._shards or not all(row.positions for row in rows):
                continue
            end = by_topic(_lowest([by_place(row.positions) for row in rows]))
            if end != self._at:
                self._unwritten.append(
                    LedgerRow(
                        kind="epoch",
                        generation=self._generations.now,
                        batch=epoch.batch,
                        ts=epoch.ts_ms,
                        start=self._at,
                        end=end,
                        otlp=[topic for topic in self._otlp if topic in end],
                    )
                )
                self._at = end
        if self._unwritten:
            try:
                self._generations.write(self._unwritten)
            except BrokerError as error:
                log.warning("the ledger is not written yet; trying again: %s", error)
            else:
                self._unwritten.clear()


def _lowest(positions: Iterable[Positions]) -> Positions:
    """Return the positions that all shards have reached, without partitions that some have not begun to read."""
    each = list(positions)
    common = set.intersection(*map(set, each))
    return {place: min(one[place] for one in each) for place in sorted(common)}


def last_end(rows: Sequence[LedgerRow]) -> Offsets:
    """Return where the ledger's last row of an epoch ends, nothing if it has none."""
    return next((row.end for row in reversed(rows) if row.kind == "epoch"), {})
