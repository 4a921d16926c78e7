"""The loop that combines shards: read `metrics-shards` → replace partial sums → publish one transaction.

Each shard has a partition of `metrics-shards`. A transaction of a shard ends with its positions row there, so the
partial sums up to a positions row are those of one moment. The topic is compacted and has all of them: the combiner
stores nothing, and at its start it reads the topic to the end before it publishes. So no sum is ever of a moment before
one that was published. Its own positions row, with the positions of every shard, is in the partition after the last
shard's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tallystream_aggregator.stream.broker import (
    PUBLISH_AGAIN,
    LostRecordsError,
    Output,
    Place,
    StoppedError,
    lost_offsets,
    unknown,
)
from tallystream_aggregator.stream.epochs import EpochLoop
from tallystream_aggregator.stream.pace import Pace
from tallystream_aggregator.stream.positions import (
    PositionsRow,
    by_place,
    by_topic,
    encode,
    key_of,
    lowest,
    newest_in,
)
from tallystream_aggregator.stream.restore import MissingRowsError, require_no_sums, require_whole
from tallystream_aggregator.sums import metric_of
from tallystream_aggregator.table.combiners import CombinerGroup, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream_aggregator.stream.broker import Broker, Chunk, Positions, RawRecord, Source
    from tallystream_aggregator.stream.epochs import EpochRow, Timer
    from tallystream_aggregator.stream.positions import Claim, LoopId
    from tallystream_aggregator.sums import Offsets, Sum
    from tallystream_aggregator.table.storage import Store

READ_AT_ONCE = 50_000


class CombinerLoop(EpochLoop):
    """The loop of the combiner. A step begins at least `spacing_s` seconds after the one before.

    Delivery: at the positions in its positions row, the sums on `metrics-agg` are those of all shards at these
    positions, for readers with `read_committed`.
    """

    def __init__(
        self,
        loop: LoopId,
        broker: Broker,
        timer: Timer,
        stopped: Callable[[], bool] = lambda: False,
        *,
        spacing_s: float = 0.5,
    ) -> None:
        super().__init__(loop, broker, timer, stopped, Pace(spacing_s, READ_AT_ONCE))
        self._combined = Combined(loop.shards)

    def is_current(self, store: Store) -> bool:
        """Tell whether what is in memory can be continued. Nothing is stored, so it always can."""
        del store
        return True

    def run_epoch(self, store: Store, claim: Claim, seconds: float) -> EpochRow:
        """Run for `seconds`, or until a stop.

        Raises:
            MissingRowsError: partial sums are gone. The tables of the shards have them.
            TallystreamError: as the loop of a shard.
        """
        try:
            return super().run_epoch(store, claim, seconds)
        except LostRecordsError as error:
            require_whole(error.place, error.bounds, f"delete {error.place.topic}, and {PUBLISH_AGAIN}")
            lost = lost_offsets(error.truncated_at or 0, error.position)
            raise MissingRowsError(
                f"topic {error.place.topic}, partition {error.place.partition}: it {lost} after they were read; "
                f"{PUBLISH_AGAIN}."
            ) from error

    def close(self) -> None:
        """Drop the partial sums and release the connections."""
        self._combined = Combined(self._loop.shards)
        super().close()

    def _source(self) -> Source:
        return self._broker.source(committed=True)

    def _restore(self, store: Store, source: Source) -> None:
        """Read `metrics-shards` to its end. What was published before need not be published again."""
        del store
        if self._last is None:
            require_no_sums(self._broker, self._loop, self._loop.sums, PUBLISH_AGAIN)
            self._publish_claim(self._row())  # before there is a sum
        else:
            self._require_untruncated(by_place(self._last.last_records), self._stopped)
        published = {} if self._last is None else by_place(self._last.positions)
        places = [Place(self._loop.topics.shards, shard) for shard in range(self._loop.shards)]
        bounds = self._broker.bounds(places)
        for place in places:
            if place not in bounds:
                raise unknown(place)
            position = published.get(place, 0)
            if bounds[place].first > 0 or bounds[place].end < position:
                raise LostRecordsError(place, position, bounds[place])
        at = {place: found.first for place, found in bounds.items()}
        ends = {place: max(found.stable, published.get(place, 0)) for place, found in bounds.items()}
        source.assign(at)
        combined, self._last_records = self._combined, {}
        # Compaction may remove what was to be read, as there are newer records after it: then these are needed.
        while combined.is_within_step or any(
            at[place] < end or combined.positions.get(place, 0) < published.get(place, 0) for place, end in ends.items()
        ):
            if self._stopped():
                raise StoppedError
            for chunk in source.read(READ_AT_ONCE, 0.1):
                combined.add(chunk, published.get(chunk.place, 0))
                at[chunk.place] = chunk.end
                if chunk.epoch_ends:
                    self._last_records[chunk.place] = chunk.epoch_ends[-1]
        self._publish()

    def _take_step(self, source: Source, timeout_s: float) -> None:
        now = self._timer.monotonic()
        chunks = self._read(source, self._pace.limit, timeout_s)
        if not chunks:
            self._report.waited_s += self._timer.monotonic() - now
            return
        self._pace.begin(self._timer.monotonic())
        moved, number = False, sum(len(chunk.rows) for chunk in chunks)
        for chunk in chunks:
            moved |= self._combined.add(chunk, 0)
        self._step_records += number
        self._report.records += number
        if moved:
            self._publish()

    def _publish(self) -> None:
        totals = self._combined.changes()
        row = self._row()
        self._commit(self._records(totals, row), row)
        self._report.sums += len(totals)

    def _row(self) -> PositionsRow:
        begun = self._combined.has_begun
        return PositionsRow(
            shard=self._loop.number,
            of=self._loop.shards,
            claim=self._claim,
            step=1 if self._last is None else self._last.step + 1,
            positions=by_topic(self._combined.positions) if begun else {},
            topics={},
            last_records=by_topic(self._last_records) if begun else {},
            shards={str(shard): found.positions for shard, found in sorted(self._combined.rows.items()) if begun},
        )

    def _records(self, totals: list[Sum], row: PositionsRow) -> Iterator[Output]:
        for total in totals:
            yield Output(self._loop.sums, total.key(), total.value())
        yield Output(self._loop.rows, key_of(row.shard), encode(row))

    def _end_epoch(self, store: Store) -> None:
        """Nothing is stored."""
        del store
        self._report.positions = by_topic(self._combined.positions)


class Combined:
    """The partial sums of all shards, each as of its newest positions row.

    `rows` has these rows by shard. `positions` are the offsets of `metrics-shards` after them.
    """

    def __init__(self, shards: int) -> None:
        self._keys = [key_of(shard) for shard in range(shards)]
        self._group = CombinerGroup()
        self._waiting: dict[Place, list[RawRecord]] = {}
        self.rows: dict[int, PositionsRow] = {}
        self.positions: Positions = {}

    @property
    def has_begun(self) -> bool:
        """Whether every shard has begun. Before that nothing is published, and no positions are."""
        return len(self.rows) == len(self._keys)

    @property
    def is_within_step(self) -> bool:
        """Whether records wait for the positions row of their step."""
        return any(self._waiting.values())

    def add(self, chunk: Chunk, published: int) -> bool:
        """Add records of a shard. Return whether the sums are of a later moment now.

        Records before the offset `published` change no sum that a reader has not seen.
        """
        place, key, moved = chunk.place, self._keys[chunk.place.partition], False
        waiting = self._waiting.setdefault(place, [])
        for record in chunk.rows:
            if record[2] != key:
                waiting.append(record)
                continue
            row = newest_in([record], key)
            if row is not None:
                self._apply(waiting, place.partition, published)
                waiting.clear()
                self.rows[row.shard], self.positions[place] = row, record[0] + 1
                moved = True
        return moved

    def _apply(self, records: list[RawRecord], shard: int, published: int) -> None:
        for offset, _, key, value in records:
            if value is not None:
                self._group.update([decode(value)], is_new=offset >= published)
            else:  # the table had other shards or other tags before
                with suppress(msgspec.DecodeError):  # it may be the positions row of another shard
                    self._group.remove(metric_of(key or b""), shard)

    def changes(self) -> list[Sum]:
        """Return the sums that changed since the last call; none before all shards have begun."""
        if not self.has_begun:
            return []
        return self._group.changes(self._offsets())

    def _offsets(self) -> Offsets:
        """Return the last offsets that every shard includes."""
        at = lowest(by_place(row.positions) for row in self.rows.values())
        return by_topic({place: position - 1 for place, position in at.items()})
