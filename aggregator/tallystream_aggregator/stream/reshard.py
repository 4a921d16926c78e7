"""Give a table another number of shards, or other tags of its sums, while no aggregator runs.

Every shard is brought to the same positions. Its lives, forgotten sums and clocks are divided among the new shards, and
one transaction writes all rows, all sums and all positions rows. So the table has its old shards or its new ones,
whatever is killed. Before that, a claim in each partition ends the tasks of the old table for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import sums
from tallystream_aggregator.stream.broker import BrokerError, Output, Place
from tallystream_aggregator.stream.outputs import Step
from tallystream_aggregator.stream.positions import (
    HangingTransactionError,
    PositionsRow,
    by_place,
    by_topic,
    encode,
    key_of,
    newest_row,
)
from tallystream_aggregator.stream.restore import READ_AT_ONCE, Begin, Restorer, read_to
from tallystream_aggregator.table.restore.latest_rows import LatestRows
from tallystream_aggregator.table.restore.restore import restore
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Broker, Positions
    from tallystream_aggregator.stream.positions import Claim
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.rows import TableRecord
    from tallystream_aggregator.table.state import MetricId
    from tallystream_aggregator.table.sum_tags import SumTags
    from tallystream_aggregator.table.table import Changes


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of shards of a table, and the tags of its sums."""

    shards: int
    sum_tags: SumTags


@dataclass(frozen=True, slots=True)
class Identities:
    """The transactional IDs: of a shard by its number, of the combiner, and of a change of the shards."""

    shard: Callable[[int], str]
    combiner: str
    reshard: str


class NoTableError(TallystreamError):
    """There is no table, or not all of its tasks have begun."""


class Resharder:
    """Changes the layout of a table. Single use.

    Args:
        broker: access to Kafka.
        topics: the table's topics. `metrics-table` needs a partition for each new shard, `metrics-shards` one more.
        ids: the transactional IDs.
        settings: of the table.
        require_current: raises FencedError if somebody has taken a higher generation. A driver takes one, and then
            fences `ids.reshard`. So a change that opens its writer later notices it.
        stopped: whether a stop was requested.
    """

    def __init__(
        self,
        broker: Broker,
        topics: Topics,
        ids: Identities,
        settings: TableSettings,
        *,
        require_current: Callable[[], None],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._broker, self._topics, self._ids, self._settings = broker, topics, ids, settings
        self._require_current, self._stopped = require_current, stopped

    def run(self, new: Layout, claim: Claim) -> int:
        """Change the layout and return how many lives the table has. `claim` is higher than those of its tasks.

        Raises:
            ConfigError: the table has more shards than `new`.
            FencedError: an aggregator was started meanwhile.
            NoTableError: there is no table, or not all of its tasks have begun.
            TallystreamError: it can't be restored.
            StoppedError: a stop was requested. Nothing has changed.
            BrokerError: it failed. Nothing has changed, or everything: run it again.
        """
        writer = self._broker.writer(self._ids.reshard)
        try:
            self._require_current()
            rows = [self._claim(self._ids.shard(0), Place(self._topics.table, 0), 0, claim)]
            old = rows[0].of
            if new.shards < old:
                raise ConfigError(
                    "--shards", new.shards, f"the table has {old}; it can be split into more, never into fewer"
                )
            rows += [
                self._claim(self._ids.shard(shard), Place(self._topics.table, shard), shard, claim)
                for shard in range(1, old)
            ]
            if old > 1:
                self._claim(self._ids.combiner, Place(self._topics.shards, old), old, claim)
            target: Positions = {}
            for row in rows:
                for place, position in by_place(row.positions).items():
                    target[place] = max(position, target.get(place, 0))
            tables = [self._table(row, target) for row in rows]
            writer.commit(self._records(tables, rows, new, target, claim))
        finally:
            writer.close()
        return sum(len(lives) for table, _ in tables for lives in table.state.lives.values())

    def _claim(self, transactional_id: str, place: Place, shard: int, claim: Claim) -> PositionsRow:
        """Fence the tasks of a shard, publish a claim that ends each of them for good, and return what is published."""
        writer = self._broker.writer(transactional_id)
        try:
            try:
                found = newest_row(self._broker, place, shard)
            except HangingTransactionError as error:
                raise BrokerError(str(error)) from error
            if found is None:
                raise NoTableError(
                    f"topic {place.topic}: it has no positions of shard {shard}; start the aggregator first."
                )
            row = msgspec.structs.replace(found, claim=claim, step=found.step + 1)
            writer.commit([Output(place, key_of(shard), encode(row))])
        finally:
            writer.close()
        return row

    def _table(self, row: PositionsRow, target: Positions) -> tuple[Table, Changes]:
        """Return the table of a shard at the target, and what it gives on the way from what is published."""
        begin = Begin(row.shard, row.of, row.sum_tags, {})
        place = Place(self._topics.table, row.shard)
        restorer = Restorer(self._broker, place, self._settings, begin, self._stopped)
        source = self._broker.source()
        try:
            table = restorer.table_at(row, NoStore(), source).table
            read_to(table, target, source, self._stopped)
        finally:
            source.close()
        table.notice_silence()
        return table, table.outputs()

    def _records(
        self,
        tables: Sequence[tuple[Table, Changes]],
        published: Sequence[PositionsRow],
        new: Layout,
        target: Positions,
        claim: Claim,
    ) -> Iterator[Output]:
        topics, latest, obsolete = self._topics, LatestRows(), dict[tuple[Place, bytes], None]()
        for shard, (table, changes) in enumerate(tables):
            for row in all_rows(table):
                latest.add(row.key, row.value(), partition=shard)
                obsolete[Place(topics.table, shard), row.key] = None
            # The sums of the old layout are replaced as a whole; dead letters and events are not.
            kept = changes._replace(totals=[], shard_sums=[])
            yield from Step(kept, [], published[shard]).letters(topics)
        for place in (Place(topics.shards, shard) for shard in range(len(tables)) if len(tables) > 1):
            obsolete |= dict.fromkeys((place, key) for key in self._keys(place))
        step = 1 + max(row.step for row in published)
        found = restore(latest, self._summed(), shards=new.shards, sum_tags=new.sum_tags)
        written: list[Output] = []
        for state in found.states:
            table = Table(state, self._settings)
            for place, position in target.items():
                table.advance(str(place), position - 1, state.clocks.get(str(place), 0))
            table.notice_silence()
            positions_row = PositionsRow(
                shard=state.shard,
                of=new.shards,
                sum_tags=new.sum_tags,
                claim=claim,
                step=step,
                positions=by_topic(target),
                topics=published[0].topics,
                records=state.records,
                dead=state.dead,
                stale=state.stale,
            )
            written += Step(table.outputs(), table.rows(), positions_row).records(topics)
        for output in written:
            obsolete.pop((output.place, output.key or b""), None)
        # Before the positions rows: what is deleted is of the same moment.
        yield from (Output(place, key, None) for place, key in obsolete)
        yield from written

    def _summed(self) -> Iterator[MetricId]:
        """Yield the metrics that have a sum on `metrics-agg`."""
        for _, value in self._newest(Place(self._topics.agg, 0)):
            try:
                row = sums.decode(value)
            except msgspec.DecodeError:
                continue  # not written by a table
            yield row.app, row.name, row.type, tuple(sorted(row.tags.items()))

    def _keys(self, place: Place) -> Iterator[bytes]:
        """Yield the keys of a shard's partial sums."""
        positions = key_of(place.partition)
        yield from (key for key, _ in self._newest(place) if key != positions)

    def _newest(self, place: Place) -> Iterator[tuple[bytes, bytes]]:
        bounds = self._broker.bounds([place])[place]
        found: dict[bytes, bytes | None] = {}
        for first in range(bounds.first, bounds.stable, READ_AT_ONCE):
            for _, _, key, value in self._broker.committed(place, first, min(first + READ_AT_ONCE, bounds.stable)):
                found[key or b""] = value
        yield from ((key, value) for key, value in found.items() if value is not None)


def all_rows(table: Table) -> list[TableRecord]:
    """Return every row of a table, whether it has changed or not, and last that of its shard."""
    state = table.state
    for name, offset in list(state.offsets.items()):
        table.advance(name, offset, state.clocks.get(name, 0))
    state.published = False
    return table.rows()


class NoStore:
    """A store that has nothing and keeps nothing."""

    def head(self) -> bytes | None:
        """Return None."""
        return None

    def set_head(self, head: bytes) -> None:
        """Do nothing."""

    def entry(self, number: int) -> bytes | None:  # noqa: ARG002 (the protocol has it)
        """Return None."""
        return None

    def add(self, number: int, entry: bytes) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""
