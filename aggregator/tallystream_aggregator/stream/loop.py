"""The loop of one shard: read `metrics` → apply → publish one transaction.

Each step is one transaction with the positions row at its end. Rows are written at most once a second, in the
transaction of a step, and are an exact cut at its positions. At the end of the epoch the rest of the rows is written,
and then the state.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import (
    BEGIN_ANEW,
    PUBLISH_AGAIN,
    BrokerError,
    LostRecordsError,
    Place,
)
from tallystream_aggregator.stream.compaction import FEW_RECORDS, StepRecords
from tallystream_aggregator.stream.epochs import EpochLoop
from tallystream_aggregator.stream.outputs import Step
from tallystream_aggregator.stream.pace import Pace
from tallystream_aggregator.stream.positions import (
    by_place,
    by_topic,
    positions_of,
    row_of,
    visible_row,
)
from tallystream_aggregator.stream.restore import LoopSettings, Restorer, require_no_sums, require_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.stream.broker import Broker, Chunk, Positions, Source
    from tallystream_aggregator.stream.epochs import Timer
    from tallystream_aggregator.stream.positions import LastRecords
    from tallystream_aggregator.table.storage import Store, StoredTable
    from tallystream_aggregator.table.table import Table

log = logging.getLogger(__name__)

ROWS_EVERY_S = 1.0
MAX_STEP_S = 10.0
"""How long a step reads and applies a backlog. A longer step leaves out more of the records that others supersede."""

MAX_OUTPUTS, MAX_OUTPUT_BYTES = 50_000, 32 << 20
"""The rows, dead letters and events after which a step ends, and the size of the records that are kept for rows.

All of them are in memory until it is published, twice. What new lives keep is allocated in between, so little of
that memory returns to the system.
"""

CHECK_EVERY_S = 5.0


class LayoutError(TallystreamError):
    """The table has another layout than the loop: it was changed since the loop's driver has read it."""


class TopicChangedError(TallystreamError):
    """A topic was deleted and created again, so the table's positions mean nothing there."""


class ShardLoop(EpochLoop):
    """The loop of a shard.

    Delivery: each record of `metrics` is in the published sums exactly once, and its dead letters and events are
    published exactly once, for readers with `read_committed`.
    """

    def __init__(
        self, settings: LoopSettings, broker: Broker, timer: Timer, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        pace = Pace(settings.spacing_s, settings.max_records, settings.max_rate)
        super().__init__(settings.loop, broker, timer, stopped, pace)
        self._settings = settings
        self._restorer = Restorer(broker, settings, stopped)
        topics = settings.loop.topics
        self._topics_of_sums = {topics.agg, topics.shards} if settings.loop.shards > 1 else {topics.agg}
        self._stored: StoredTable | None = None
        self._topic_ids: dict[str, str] = {}
        self._begin: Positions = {}  # where the shard began
        self._rows_s = self._checked_s = 0.0
        self._rows_wait = False

    @property
    def _table(self) -> Table:
        assert self._stored is not None
        return self._stored.table

    def is_current(self, store: Store) -> bool:
        """Tell whether the table in memory continues what the store has."""
        return self._stored is not None and self._stored.is_current(store)

    def close(self) -> None:
        """Drop the table and release the connections. The next epoch begins again at what is published."""
        self._stored = None
        super().close()

    def _source(self) -> Source:
        return self._broker.source()

    def _restore(self, store: Store, source: Source) -> None:
        self._stored = self._table_at(store, source)
        self._discover(source, first=True)
        self._rows_wait, self._rows_s = True, self._timer.monotonic()
        if self._last is None:
            self._publish()

    def _table_at(self, store: Store, source: Source) -> StoredTable:
        """Return the table at the published positions."""
        self._topic_ids, self._begin, self._last_records = {}, {}, {}
        if self._last is None:
            self._require_no_sums()
            self._begin = dict(self._begin_positions())
            return self._restorer.new_table(self._begin)
        self._topic_ids, self._begin, layout = self._last.topics, by_place(self._last.begin), self._settings.layout
        if self._last.layout != layout:
            raise LayoutError(
                f"shard {self._loop.number}: the table has {self._last.layout}, not {layout}: tallystream rebuild has "
                "changed it meanwhile; start again."
            )
        self._require_same(self._broker.topic_ids(self._topic_ids.keys()))
        self._last_records = by_place(self._last.last_records)
        self._require_untruncated(self._last_records, self._stopped)
        return self._restorer.table_at(self._last, store, source)

    def _begin_positions(self) -> Positions:
        """Return where the table begins. The first shard decides: its driver may be another one than ours."""
        if self._loop.number == 0:
            return self._settings.begin
        first = visible_row(self._broker, self._loop._replace(number=0).rows, 0)
        if first is None:
            raise BrokerError(f"shard {self._loop.number}: the first shard has not begun yet.")
        return by_place(first.begin)

    def _require_no_sums(self) -> None:
        """Require that no sums are published, as there are no positions.

        Raises:
            MissingRowsError: there are sums, or there were rows.
            BrokerError: another task has begun the table meanwhile.
        """
        loop, rows = self._loop, self._loop.rows
        # else the rows of this table could not be told from others
        require_whole(rows, self._broker.bounds([rows]).get(rows), BEGIN_ANEW)
        # The combiner waits for the first positions of every shard, so the first shard begins before there is a sum.
        place = loop.sums if loop.number else Place(loop.topics.agg, 0)
        require_no_sums(self._broker, loop, place, f"restore that topic, or {BEGIN_ANEW}")

    def _discover(self, source: Source, *, first: bool = False) -> None:
        """Read partitions and topics that were added since the last call, too."""
        self._checked_s = self._timer.monotonic()
        found = {Place(topic, p) for topic, ps in self._broker.partitions().items() for p in ps}
        if not found:
            raise BrokerError(f"topic {self._loop.topics.metrics}: it has no partition that can be read.")
        rows = self._loop.rows.topic
        ids = self._broker.topic_ids({place.topic for place in found} | self._topics_of_sums | {rows})
        self._require_same(ids)
        self._topic_ids = self._topic_ids | ids
        self._table.state.topic_id = self._topic_ids.get(rows, "")
        at = positions_of(self._table.state)
        added = sorted(found - at.keys())
        for place, bounds in (self._broker.bounds(added) if added else {}).items():
            if bounds.first > 0 and not self._settings.skip_lost:
                raise LostRecordsError(place, 0, bounds)
            at[place] = self._begin[place] = bounds.first
            self._table.advance(str(place), bounds.first - 1, 0)
            self._rows_wait = True  # a state must not be ahead of what is published
        if added or first:
            source.assign(at)

    def _require_same(self, ids: dict[str, str]) -> None:
        """Require that the topics of the positions are still the same."""
        for topic, topic_id in ids.items():
            if self._topic_ids.get(topic, topic_id) == topic_id:
                continue
            if topic in self._topics_of_sums:
                lost = f"so sums that do not change are missing there; {PUBLISH_AGAIN}"
            else:
                lost = f"so the table's positions mean nothing there; {BEGIN_ANEW}"
            raise TopicChangedError(f"topic {topic}: it was deleted and created again, {lost}.")

    def _take_step(self, source: Source, timeout_s: float) -> None:
        now = self._timer.monotonic()
        if now - self._checked_s >= CHECK_EVERY_S:
            self._discover(source)
        chunks = self._read(source, self._pace.limit, timeout_s)
        if chunks:
            self._pace.begin(self._timer.monotonic())
            self._apply(source, chunks, self._pace.limit)
            self._publish()
            return
        self._report.waited_s += self._timer.monotonic() - now
        if self._rows_due():
            self._publish()

    def _read(self, source: Source, max_records: int, timeout_s: float) -> list[Chunk]:
        try:
            return super()._read(source, max_records, timeout_s)
        except LostRecordsError as error:
            if error.first is None:
                self._require_untruncated(self._last_records)  # it may have been written again up to its present end
            if not self._settings.skip_lost or error.first is None:
                raise
            log.warning("records are skipped: %s", error)
            table, name = self._table, str(error.place)
            table.advance(name, error.first - 1, table.state.clocks.get(name, 0))
            source.assign(positions_of(table.state))
            self._rows_wait = True
            return []

    def _require_untruncated(self, last_records: LastRecords, stopped: Callable[[], bool] = lambda: False) -> None:
        try:
            super()._require_untruncated(last_records, stopped)
        except LostRecordsError as error:
            self._require_same(self._broker.topic_ids([error.place.topic]))
            raise

    def _apply(self, source: Source, chunks: list[Chunk], limit: int) -> None:
        """Apply what was read, and what is there besides, up to a number of records and for a limited time."""
        step, left = StepRecords(self._table), limit
        until_s = self._timer.monotonic() + MAX_STEP_S
        while True:
            number = _add_all(step, chunks)
            left -= number
            self._step_records, self._rows_wait = limit - left, True
            # Few records mean that there is no backlog: the others wait for the next step.
            is_over = left <= 0 or self._stopped() or self._timer.monotonic() >= until_s
            if number < FEW_RECORDS or is_over or self._is_full():
                break
            chunks = self._read(source, left, 0)
        step.end()
        self._report.records += limit - left

    def _rows_due(self) -> bool:
        is_time = self._timer.monotonic() - self._rows_s >= ROWS_EVERY_S or self._is_full()
        return self._rows_wait and is_time

    def _is_full(self) -> bool:
        return self._table.waiting >= MAX_OUTPUTS or self._table.waiting_bytes >= MAX_OUTPUT_BYTES

    def _publish(self, *, rows: bool = False) -> None:
        """Publish what changed since the last step in one transaction: also the positions alone, if they moved."""
        table, last = self._table, self._last
        changes = table.outputs()
        number, settings = 1 if last is None else last.step + 1, table.settings
        # A replay reads partitions in another order, so in a full table other lives would have room.
        if last is None or changes.was_full or last.settings(settings) != settings:
            table.state.replay_since, rows = number, True
        with_rows = rows or self._rows_due()
        row = row_of(
            table.state,
            claim=self._claim,
            step=number,
            topics=self._topic_ids,
            begin=by_topic({place: at for place, at in self._begin.items() if at}),
            last_records=self._last_records,
            settings=settings,
            replay_since=table.state.replay_since,
        )
        step = Step(changes, table.rows() if with_rows else [], row)
        self._commit(step.records(self._loop.topics), row)
        self._report.sums += len(changes.totals) + len(changes.shard_sums)
        self._report.rows += len(step.rows)
        if with_rows:
            self._rows_wait, self._rows_s = False, self._timer.monotonic()

    def _end_epoch(self, store: Store) -> None:
        """Write the rest of the rows, and then the state: it is never behind a row that is missing on the topic.

        While a large state is stored, steps go on for a limited time: Spark waits for the end of the epoch.
        """
        assert self._stored is not None
        assert self._open_clients is not None
        source, timer, until_s = self._open_clients[1], self._timer, self._timer.monotonic() + MAX_STEP_S
        for _ in self._stored.save_ahead(store):
            if self._pace.begins_s <= timer.monotonic() < until_s and not self._stopped():
                self._take_step(source, 0)
        if self._rows_wait:
            self._publish(rows=True)
        self._stored.save(store)
        self._report.state_bytes = self._stored.size
        self._report.positions = by_topic(positions_of(self._table.state))


def _add_all(step: StepRecords, chunks: list[Chunk]) -> int:
    """Apply chunks and take them out of the list, so that they are freed before more is read.

    Return the number of their records.
    """
    number = 0
    while chunks:
        chunk = chunks.pop(0)
        step.add(chunk)
        number += len(chunk.rows)
    return number
