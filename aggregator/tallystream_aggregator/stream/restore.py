"""The table of a shard at the published positions: after a start, a takeover, an error and a loss, in one way.

The newest positions row says what is published. The table is that of the state, or else of the rows of `metrics-table`,
which are an exact cut. From there the records up to exactly the published positions are applied in silence: what they
give is published already. A step that refuses something for lack of room publishes its rows, and no replay begins
before it. So a replay has room for all, whatever the limit is and in which order it reads several partitions. At the
published positions the table has counted what the positions row says.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import (
    BEGIN_ANEW,
    BrokerError,
    Chunk,
    LostRecordsError,
    Place,
    Positions,
    StoppedError,
    bounds_of,
    unknown,
)
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.stream.positions import Layout, by_place, key_of, positions_of, visible_row
from tallystream_aggregator.stream.reading import READ_AT_ONCE, read_range
from tallystream_aggregator.table import storage
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.restore import LatestRows
from tallystream_aggregator.table.restore import restore as restore_states
from tallystream_aggregator.table.state import State, StateError
from tallystream_aggregator.table.storage import StoredTable
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.stream.broker import Bounds, Broker, Source
    from tallystream_aggregator.stream.positions import LoopId, PositionsRow
    from tallystream_aggregator.table.state import LifeId
    from tallystream_aggregator.table.storage import Store

log = logging.getLogger(__name__)


class ReplayError(TallystreamError):
    """A replay to the published positions did not count what was counted when they were published."""


class MissingRowsError(TallystreamError):
    """There are positions, and rows were deleted."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The settings of a shard's loop.

    A new table begins at `begin`, and its sums have the tags `sum_tags`. A step begins at least `spacing_s` seconds
    after the one before, and has up to `max_records`. `max_rate` limits the records that are read in a second. With
    `skip_lost`, records that were deleted unread are skipped; otherwise they stop the loop.
    """

    loop: LoopId
    sum_tags: SumTags = field(default_factory=SumTags)
    begin: Positions = field(default_factory=dict)
    table: TableSettings = field(default_factory=TableSettings)
    spacing_s: float = 0.5
    max_records: int = 5_000_000
    max_rate: int | None = None
    skip_lost: bool = False

    @property
    def layout(self) -> Layout:
        """The layout of the table."""
        return Layout(self.loop.shards, self.sum_tags)


class Restorer:
    """Makes the table again that published a positions row. `stopped` tells whether a stop was requested."""

    def __init__(self, broker: Broker, settings: LoopSettings, stopped: Callable[[], bool]) -> None:
        self._broker, self._settings, self._stopped = broker, settings, stopped
        self._loop = settings.loop
        self.omitted: list[LifeId] = []
        """The lives whose counts the rows lack, because they were too large to be written."""

    def new_table(self, positions: Positions) -> StoredTable:
        """Return an empty table at the positions at which it begins."""
        state = State(shard=self._loop.number, shards=self._loop.shards, sum_tags=self._settings.sum_tags)
        table = Table(state, self._settings.table)
        for place, position in positions.items():
            table.advance(str(place), position - 1, 0)
        return StoredTable(table)

    def table_at(self, published: PositionsRow, store: Store | None, source: Source) -> StoredTable:
        """Return the table at the published positions. `source` is used for the replay.

        If there is no store, the table is made of its rows.

        Raises:
            LostRecordsError: records that the newest rows do not include were deleted, or the log was cut off.
            MissingRowsError: there are no rows, or some were deleted.
            ReplayError: the rows do not agree with the positions row.
            StoppedError: a stop was requested.
            BrokerError: the broker did not answer in time, or another task publishes.
        """
        target = by_place(published.positions)
        bounds = self._broker.bounds([*target, self._loop.rows])
        for place, position in target.items():
            if place not in bounds:
                raise unknown(place)
            if position > bounds[place].end:
                raise LostRecordsError(place, position, bounds[place])
        stored = None if store is None else self._from_state(store, published)
        if stored is not None:
            try:
                self._replay(stored.table, published, source)
            except (LostRecordsError, ReplayError) as error:
                log.warning("the state of shard %d is not used: %s", self._loop.number, error)
            else:
                stored.table.change_settings(self._settings.table)
                return stored
        try:
            require_whole(self._loop.rows, bounds.get(self._loop.rows), BEGIN_ANEW)
            stored = self._from_rows()
            self._replay(stored.table, published, source, skip_lost=self._settings.skip_lost)
        except (ReplayError, MissingRowsError, LostRecordsError) as error:
            if visible_row(self._broker, self._loop.rows, self._loop.number) == published:
                raise
            raise BrokerError(f"shard {self._loop.number}: another task has published more meanwhile.") from error
        stored.table.change_settings(self._settings.table)
        return stored

    def _from_state(self, store: Store, published: PositionsRow) -> StoredTable | None:
        """Return the stored table, or None if there is none that can be read, or one that can't lead to `published`.

        That of another `metrics-table` can't, nor one from before the step at which a replay may begin.
        """
        try:
            stored = storage.load(store, self._settings.table)
        except StateError as error:
            log.warning(
                "the state of shard %d is made again from %s: %s", self._loop.number, self._loop.rows.topic, error
            )
            return None
        if stored is None:
            return None
        state = stored.table.state
        topic_id = published.topics.get(self._loop.rows.topic, "")
        wanted = (*self._settings.layout, topic_id, published.replay_since)
        return stored if (state.shards, state.sum_tags, state.topic_id, state.replay_since) == wanted else None

    def _from_rows(self) -> StoredTable:
        """Return the table of the newest rows.

        Raises:
            MissingRowsError: they are missing.
        """
        loop, latest = self._loop, rows_of(self._broker, self._loop.rows, self._stopped)
        if (loop.number, b'["shard",%d]' % loop.number) not in latest.rows:
            raise MissingRowsError(
                f"topic {loop.rows.topic}, partition {loop.number}: it has positions, and its rows, or that of the "
                f"shard, were deleted; {BEGIN_ANEW}."
            )
        found = restore_states(latest, shards=loop.shards, sum_tags=self._settings.sum_tags)
        self.omitted = found.omitted
        if found.omitted:
            log.warning("%d lives lack their counts: their rows were too large to be written", len(found.omitted))
        return StoredTable(Table(found.states[loop.number], self._settings.table))

    def _replay(self, table: Table, published: PositionsRow, source: Source, *, skip_lost: bool = False) -> None:
        """Apply the records up to exactly the published positions, and drop what they give."""
        target = by_place(published.positions)
        if not _is_not_ahead(positions_of(table.state), target):
            raise ReplayError(f"shard {self._loop.number}: the table is ahead of the published positions.")
        if published.replay_since:
            table.change_settings(replace(published.settings(table.settings), max_table_bytes=sys.maxsize))
        table.state.replay_since = published.replay_since
        skipped = read_to(table, target, source, self._stopped, skip_lost=skip_lost)
        table.outputs()
        counted = (table.state.records, table.state.dead, table.state.stale)
        known = (published.records, published.dead, published.stale)
        # Of several partitions, the order in which they are read decides whether a record is stale.
        if not skipped and (counted[0] != known[0] or (len(target) == 1 and counted != known)):
            raise ReplayError(
                f"shard {self._loop.number}: a replay to the published positions counts {counted} (records, dead, "
                f"stale), and the positions row has {known}: records or rows were changed; {BEGIN_ANEW}."
            )


def rows_of(broker: Broker, place: Place, stopped: Callable[[], bool] = lambda: False) -> LatestRows:
    """Return the newest committed record of each key of a loop's partition, but its positions row.

    Raises:
        StoppedError: a stop was requested.
        BrokerError: the broker did not answer in time, or does not know the partition.
    """
    latest, positions = LatestRows(), key_of(place.partition)
    for _, _, key, value in read_range(broker, place, bounds_of(broker, place), stopped):
        if key is not None and key != positions:
            latest.add(key, value, place.partition)
    return latest


def require_whole(place: Place, bounds: Bounds | None, remedy: str) -> None:
    """Require that no record at the begin of a compacted partition was deleted: compaction keeps its first offset.

    Raises:
        MissingRowsError: the newest records of some keys may be missing.
    """
    if bounds is not None and bounds.first > 0:
        raise MissingRowsError(
            f"topic {place.topic}, partition {place.partition}: the records before offset {bounds.first} were deleted, "
            f"also those that nothing has replaced; set its cleanup.policy to compact, and {remedy}."
        )


def require_no_sums(broker: Broker, loop: LoopId, sums: Place, remedy: str) -> None:
    """Require that no sums are published, as there are no positions of this loop.

    Raises:
        MissingRowsError: there are sums, so the positions were deleted.
        BrokerError: another task has begun meanwhile.
    """
    bounds = broker.bounds([sums]).get(sums)
    if bounds is None or next(read_range(broker, sums, bounds), None) is None:
        return  # what may be there is only of transactions that failed
    if visible_row(broker, loop.rows, loop.number) is not None:
        raise BrokerError(f"topic {loop.rows.topic}, partition {loop.number}: another task has begun the table.")
    raise MissingRowsError(
        f"topic {sums.topic}: it has sums, and {loop.rows.topic} has no positions of the loop that wrote them in "
        f"partition {loop.number}; {remedy}."
    )


def read_to(
    table: Table,
    target: Positions,
    source: Source,
    stopped: Callable[[], bool],
    *,
    skip_lost: bool = False,
) -> bool:
    """Apply the records up to exactly these positions, and return whether deleted ones were skipped.

    Raises:
        StoppedError: a stop was requested.
        LostRecordsError: records were deleted, and may not be skipped.
        BrokerError: the broker rejects the request.
    """
    left, skipped = _left(table, target), False
    source.assign(left)
    while left:
        if stopped():
            raise StoppedError
        step, reached = StepRecords(table), False
        try:
            chunks = source.read(READ_AT_ONCE, 0.1)
        except LostRecordsError as error:
            if not skip_lost or error.first is None:
                raise
            log.warning("records are skipped: %s", error)
            chunks, skipped, reached = [Chunk(error.place, (), error.first)], True, True
        for chunk in chunks:
            end = target[chunk.place]
            step.add(_cut(chunk, end))
            reached |= chunk.end >= end
        step.end()
        if reached:
            left = _left(table, target)
            source.assign(left)
    return skipped


def _left(table: Table, target: Positions) -> Positions:
    """Return where to read from the partitions that are behind. One that the table does not know was added later."""
    at = positions_of(table.state)
    return {place: at.get(place, 0) for place, end in target.items() if at.get(place, 0) < end}


def _is_not_ahead(at: Positions, target: Positions) -> bool:
    """Tell whether no position of a table is above the published one. It is after an unclean election."""
    return all(position <= target.get(place, -1) for place, position in at.items())


def _cut(chunk: Chunk, end: int) -> Chunk:
    """Return the part of a chunk before a position."""
    if chunk.end <= end:
        return chunk
    return Chunk(chunk.place, [row for row in chunk.rows if row[0] < end], end)
