"""The loop of one shard: restore, then read → apply → publish one transaction, until the epoch ends.

Each step is one transaction with the positions row at its end. Rows are written at most once a second, in the
transaction of a step, and are an exact cut at its positions. At the end of the epoch the rest of the rows is written,
and then the state. An error ends the writer. The loop then begins again from what is published, so there is one
procedure for errors, restarts and takeovers. A writer that is fenced ends for good.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import BrokerError, FencedError, LostRecordsError, Place, Positions
from tallystream_aggregator.stream.compaction import FEW_RECORDS, StepRecords
from tallystream_aggregator.stream.outputs import Step
from tallystream_aggregator.stream.pace import MAX_FAILURES, Pace
from tallystream_aggregator.stream.positions import PositionsRow, by_topic, newest_row, visible_row
from tallystream_aggregator.stream.restore import Begin, Restorer, StoppedError, positions_of
from tallystream_aggregator.table.limits import TableSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Broker, Chunk, Source, Writer
    from tallystream_aggregator.stream.positions import Claim
    from tallystream_aggregator.table.storage import Store, StoredTable

log = logging.getLogger(__name__)

ROWS_EVERY_S = 1.0
MAX_STEP_S = 1.0
"""How long a step reads and applies a backlog."""

CHECK_EVERY_S = 5.0
POLL_S = 0.1
"""How long a read waits for a first record. A stop is noticed after it."""

MIN_BACK_OFF_S, MAX_BACK_OFF_S = 0.1, 10.0


class Timer(Protocol):
    """The time of the loop."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class StepFailedError(TallystreamError):
    """Kafka refuses the transaction of a single record, again and again."""


class TopicChangedError(TallystreamError):
    """A topic was deleted and created again, so the table's positions mean nothing there."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The settings of a shard's loop.

    `transactional_id` is the shard's own. A step begins at least `spacing_s` seconds after the one before, and has up
    to `max_records`. With `skip_lost`, records that were deleted unread are skipped; otherwise they stop the loop.
    """

    topics: Topics
    begin: Begin
    transactional_id: str
    table: TableSettings = field(default_factory=TableSettings)
    spacing_s: float = 0.5
    max_records: int = 1_000_000
    skip_lost: bool = False

    @property
    def rows(self) -> Place:
        """The shard's partition of `metrics-table`."""
        return Place(self.topics.table, self.begin.shard)


@dataclass(slots=True)
class EpochReport:
    """What an epoch did: counts of steps, records, sums and rows, and seconds of waiting.

    `positions` are those at its end, and `state_bytes` is the size of the stored table.
    """

    steps: int = 0
    records: int = 0
    sums: int = 0
    rows: int = 0
    restarts: int = 0
    waited_s: float = 0.0
    state_bytes: int = 0
    positions: Positions = field(default_factory=dict)


class _Session(NamedTuple):
    """A table at the published positions, with the writer and the source that continue from there."""

    stored: StoredTable
    writer: Writer
    source: Source


class ShardLoop:
    """The loop of a shard in one process, over several epochs. For one thread.

    Delivery: each record of `metrics` is in the published sums exactly once, and its dead letters and events are
    published exactly once, for readers with `read_committed`. After FencedError the object can't be used any more.
    """

    def __init__(
        self, settings: LoopSettings, broker: Broker, timer: Timer, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._settings, self._broker, self._timer, self._stopped = settings, broker, timer, stopped
        self._restorer = Restorer(
            broker, settings.rows, settings.table, settings.begin, stopped, skip_lost=settings.skip_lost
        )
        self._session: _Session | None = None
        self._pace = Pace(settings.spacing_s, settings.max_records)
        self._report = EpochReport()
        self._claim: Claim = (0, 0, 0)
        self._last: PositionsRow | None = None
        self._topic_ids: dict[str, str] = {}
        self._rows_s = self._checked_s = 0.0
        self._rows_wait = False
        self._step_records = 0

    def is_current(self, store: Store) -> bool:
        """Tell whether the table in memory continues what the store has."""
        return self._session is not None and self._session.stored.log.is_current(store)

    def run_epoch(self, store: Store, claim: Claim, seconds: float) -> EpochReport:
        """Run for `seconds`, or until a stop, and store the state at the end. Return what was done.

        If the published positions can't be reached by then, the state stays as it was.

        Raises:
            FencedError: another writer has the shard. This object must not be used again.
            LostRecordsError: unread records were deleted, without `skip_lost`.
            TopicChangedError: a topic was created again.
            StepFailedError: Kafka refuses the step of a single record.
            TallystreamError: what is published can't be continued; the message has the remedy.
        """
        self._report = report = EpochReport()
        end_s = self._timer.monotonic() + seconds
        back_off_s = MIN_BACK_OFF_S
        if self._session is not None and not self.is_current(store):
            self.close()
        while True:
            try:
                if self._session is None:
                    self._session = self._open(store, claim)
                    report.restarts += 1
                self._run(self._session, end_s)
                self._end_epoch(self._session, store)
            except StoppedError:
                break
            except FencedError:
                self.close()
                raise
            except BrokerError as error:
                self.close()
                log.warning("shard %d begins again at what is published: %s", self._settings.begin.shard, error)
                if not self._wait(back_off_s, end_s):
                    break
                back_off_s = min(2 * back_off_s, MAX_BACK_OFF_S)
            else:
                break
        return report

    def _wait(self, seconds: float, end_s: float) -> bool:
        """Wait, and return True, or False as soon as the epoch ends or a stop is requested."""
        until_s = self._timer.monotonic() + seconds
        while not self._stopped() and (now := self._timer.monotonic()) < end_s:
            if now >= until_s:
                return True
            self._timer.sleep(min(POLL_S, until_s - now))
        return False

    def close(self) -> None:
        """Drop the table and release the connections. The next epoch begins again at what is published."""
        if self._session is not None:
            self._session.writer.close()
            self._session.source.close()
            self._session = None

    def _open(self, store: Store, claim: Claim) -> _Session:
        """Fence earlier writers, and return the table at the published positions.

        The writer comes first: what an earlier one has committed until then is found, and later it can't commit. Only
        a claim is looked up before: Spark of a replaced driver runs a fenced task again, which must not fence others.
        """
        self._require_highest(claim, visible_row(self._broker, self._settings.rows, self._settings.begin.shard))
        writer = self._broker.writer(self._settings.transactional_id)
        source = self._broker.source()
        try:
            self._last = self._published(claim)
            session = _Session(self._table(store, source), writer, source)
            self._claim_shard(session, claim)
        except BaseException:
            writer.close()
            source.close()
            raise
        return session

    def _published(self, claim: Claim) -> PositionsRow | None:
        """Return the newest positions row, or None for a new table."""
        settings = self._settings
        published = newest_row(self._broker, settings.rows, settings.begin.shard)
        if published is None:
            self._require_no_sums()
        self._require_highest(claim, published)
        return published

    def _table(self, store: Store, source: Source) -> StoredTable:
        """Return the table at the published positions."""
        if self._last is None:
            self._topic_ids = {}
            return self._restorer.new_table()
        self._topic_ids = self._last.topics
        self._require_same(self._broker.topic_ids(self._topic_ids.keys()))
        return self._restorer.table_at(self._last, store, source)

    def _require_highest(self, claim: Claim, published: PositionsRow | None) -> None:
        if published is not None and published.claim > claim:
            raise FencedError(
                f"shard {published.shard}: a newer task has it, with the claim {published.claim} (generation, batch, "
                f"attempt); this one has {claim}."
            )

    def _require_no_sums(self) -> None:
        agg = Place(self._settings.topics.agg, 0)
        bounds = self._broker.bounds([agg]).get(agg)
        if bounds is not None and bounds.first < bounds.end and self._settings.begin.shard == 0:
            raise TallystreamError(
                f"topic {agg.topic}: it has sums, and {self._settings.topics.table} has no positions of the table that "
                "wrote them; restore that topic, or delete both and begin a new table with --from earliest."
            )

    def _claim_shard(self, session: _Session, claim: Claim) -> None:
        """Publish the claim of this task, with the rows of a new table, and begin to read."""
        self._claim = claim
        self._discover(session, first=True)
        self._rows_wait, self._rows_s = True, self._timer.monotonic()
        self._publish(session, is_claim=True)

    def _discover(self, session: _Session, *, first: bool = False) -> None:
        """Read partitions and topics that were added since the last call, too."""
        self._checked_s = self._timer.monotonic()
        found = {Place(topic, p) for topic, ps in self._broker.partitions().items() for p in ps}
        if not found:
            raise BrokerError(f"topic {self._settings.topics.metrics}: it has no partition that can be read.")
        ids = self._broker.topic_ids({place.topic for place in found})
        self._require_same(ids)
        self._topic_ids = self._topic_ids | ids
        at = positions_of(session.stored.table.state)
        added = sorted(found - at.keys())
        for place, bounds in (self._broker.bounds(added) if added else {}).items():
            if bounds.first > 0 and not self._settings.skip_lost:
                raise LostRecordsError(place, 0, bounds)
            at[place] = bounds.first
            session.stored.table.advance(str(place), bounds.first - 1, 0)
        if added or first:
            session.source.assign(at)

    def _require_same(self, ids: dict[str, str]) -> None:
        """Require that the topics of the positions are still the same."""
        for topic, topic_id in ids.items():
            if self._topic_ids.get(topic, topic_id) != topic_id:
                raise TopicChangedError(
                    f"topic {topic}: it was deleted and created again, so the table's positions mean nothing there; "
                    "begin a new table with --from earliest."
                )

    def _run(self, session: _Session, end_s: float) -> None:
        """Take steps until the end of the epoch."""
        timer, pace, report = self._timer, self._pace, self._report
        while not self._stopped() and (now := timer.monotonic()) < end_s:
            if now - self._checked_s >= CHECK_EVERY_S:
                self._discover(session)
            wait_s = min(pace.begins_s - now, POLL_S, end_s - now)
            if wait_s > 0:
                timer.sleep(wait_s)
                report.waited_s += wait_s
                continue
            chunks = self._read(session, pace.limit, min(POLL_S, end_s - now))
            if not chunks:
                report.waited_s += timer.monotonic() - now
                if self._rows_due():
                    self._publish(session)
                continue
            pace.begin(timer.monotonic())
            self._apply(session, chunks, pace.limit)
            self._publish(session)

    def _read(self, session: _Session, max_records: int, timeout_s: float) -> list[Chunk]:
        try:
            return session.source.read(max_records, timeout_s)
        except LostRecordsError as error:
            if not self._settings.skip_lost or error.bounds is None or error.position > error.bounds.end:
                raise
            log.warning("records are skipped: %s", error)
            table, name = session.stored.table, str(error.place)
            table.advance(name, error.bounds.first - 1, table.state.clocks.get(name, 0))
            session.source.assign(positions_of(table.state))
            return []

    def _apply(self, session: _Session, chunks: list[Chunk], limit: int) -> None:
        """Apply what was read, and what is there besides, up to a number of records and for a limited time."""
        step, left = StepRecords(session.stored.table, self._settings.table), limit
        until_s = self._timer.monotonic() + MAX_STEP_S
        while True:
            number = 0
            for chunk in chunks:
                step.add(chunk)
                number += len(chunk.rows)
            left -= number
            self._step_records, self._rows_wait = limit - left, True
            # Few records mean that there is no backlog: the others wait for the next step.
            if number < FEW_RECORDS or left <= 0 or self._timer.monotonic() >= until_s:
                break
            chunks = self._read(session, left, 0)
        step.end()
        self._report.records += limit - left

    def _rows_due(self) -> bool:
        return self._rows_wait and self._timer.monotonic() - self._rows_s >= ROWS_EVERY_S

    def _publish(self, session: _Session, *, rows: bool = False, is_claim: bool = False) -> None:
        """Publish what changed since the last step in one transaction: also the positions alone, if they moved."""
        table, timer, last = session.stored.table, self._timer, self._last
        table.notice_silence()
        changes = table.outputs()
        with_rows = rows or last is None or self._rows_due()
        step = Step(
            changes,
            table.rows() if with_rows else [],
            PositionsRow(
                shard=self._settings.begin.shard,
                claim=self._claim,
                step=1 if last is None else last.step + 1,
                positions=by_topic(positions_of(table.state)),
                topics=self._topic_ids,
                records=table.state.records,
                dead=table.state.dead,
                stale=table.state.stale,
            ),
        )
        began_s = timer.monotonic()
        try:
            session.writer.commit(step.records(self._settings.topics))
        except BrokerError as error:
            # While the broker is unavailable no writer opens, so these are the failures of steps.
            if self._pace.failed(0 if is_claim else self._step_records):
                at = {} if last is None else last.positions
                raise StepFailedError(
                    f"a step of one record failed {MAX_FAILURES} times, after the positions {at}: {error} Correct what "
                    "the broker refuses; the table continues there."
                ) from error
            raise
        self._pace.published(timer.monotonic() - began_s)
        self._last, self._step_records = step.row, 0
        self._report.steps += 1
        self._report.sums += len(changes.totals)
        self._report.rows += len(step.rows)
        if with_rows:
            self._rows_wait, self._rows_s = False, timer.monotonic()

    def _end_epoch(self, session: _Session, store: Store) -> None:
        """Write the rest of the rows, and then the state: it is never behind a row that is missing on the topic."""
        if self._rows_wait:
            self._publish(session, rows=True)
        session.stored.save(store)
        self._report.state_bytes = session.stored.log.size
        self._report.positions = positions_of(session.stored.table.state)
