"""Give a table another layout, more shards or other tags of its sums, while no aggregator runs.

Every shard is brought to the same positions. Its lives, forgotten sums and clocks are divided among the new shards. All
rows, all sums and all positions rows are for one transaction. So the table has its old layout or the new one, whatever
is killed. Before that, a claim in each partition ends the tasks of the old table for good.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import sums
from tallystream_aggregator.stream.broker import Output, Place, StoppedError
from tallystream_aggregator.stream.hanging import end_open
from tallystream_aggregator.stream.outputs import Step, letters
from tallystream_aggregator.stream.positions import (
    Layout,
    LoopId,
    PositionsRow,
    by_place,
    encode,
    key_of,
    loops_of,
    newest_row,
    require_highest,
    require_visible,
    row_of,
    visible_row,
)
from tallystream_aggregator.stream.restore import LoopSettings, Restorer, read_to, rows_of
from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum
from tallystream_aggregator.table.combiners import ShardSum
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Broker, Positions
    from tallystream_aggregator.stream.positions import Claim
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.state import LifeId, State
    from tallystream_aggregator.table.sum_tags import SumTags
    from tallystream_aggregator.table.table import Changes


class NoTableError(TallystreamError):
    """There is no table, or not all of its tasks have begun."""


class Resharded(NamedTuple):
    """The layout before and after a change, and the positions at which `records` change it."""

    old: Layout
    new: Layout
    positions: Positions
    records: list[Output]


class Resharder:
    """Changes the layout of a table. Single use.

    Args:
        broker: access to Kafka.
        topics: the table's topics. `metrics-table` needs a partition for each new shard, `metrics-shards` one more.
        settings: of the table, those with which the records were applied.
        stopped: whether a stop was requested.
        say: is told the progress.
    """

    def __init__(
        self,
        broker: Broker,
        topics: Topics,
        settings: TableSettings,
        *,
        stopped: Callable[[], bool] = lambda: False,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._broker, self._topics, self._settings = broker, topics, settings
        self._stopped, self._say = stopped, say
        self._letters: list[Output] = []
        self._omitted: list[LifeId] = []

    def run(self, claim: Claim, *, shards: int | None = None, sum_tags: SumTags | None = None) -> Resharded:
        """Return the records that change what is given, and keep the rest. `claim` is higher than the table's tasks'.

        If nothing is given, they publish all sums and rows again. The caller writes them in one transaction, with a
        writer that was opened before this call. A driver that starts later fences that writer before it reads the
        layout: so the change is there by then, or never.

        Raises:
            ConfigError: the table has more shards.
            NoTableError: there is no table, or not all of its tasks have begun.
            FencedError: the table has a higher claim: a newer driver has it.
            TallystreamError: it can't be restored, or its rows lack counts.
            StoppedError: a stop was requested.
            BrokerError: it failed: run it again.
        """
        first = visible_row(self._broker, LoopId(self._topics).rows, 0)
        if first is None:
            raise self._no_table(0)
        old = first.layout
        new = Layout(shards or old.shards, old.sum_tags if sum_tags is None else sum_tags)
        if new.shards < old.shards:
            raise ConfigError(
                "--shards", new.shards, f"the table has {old.shards}; it can be split into more, never into fewer"
            )
        published = [self._claim(loop, claim) for loop in loops_of(self._topics, old.shards)][: old.shards]
        target = _highest(published)
        tables = [self._table_at(row, target) for row in published]
        lives = sum(len(known) for table in tables for known in table.state.lives.values())
        self._say(f"{lives:,} lives; reading the sums on {self._topics.agg}")
        step, topics = 1 + max(row.step for row in published), self._topics
        # The topics of the sums may have been created again: all sums are on them now.
        names = {topics.agg, topics.table, topics.shards} if new.shards > 1 else {topics.agg, topics.table}
        last = by_place(first.last_records)
        topic_ids = first.topics | self._broker.topic_ids(names)
        records = self._records(
            tables,
            new,
            target,
            lambda state: row_of(
                state,
                claim=claim,
                step=step,
                topics=topic_ids,
                begin=first.begin,
                last_records=last,
                settings=self._settings,
                replay_since=step,
            ),
        )
        if new.shards > 1:
            combiner = _combiner_row(new.shards, claim)
            records.append(Output(Place(topics.shards, new.shards), key_of(new.shards), encode(combiner)))
        self._say(f"writing {len(records):,} records in one transaction, which is not interrupted")
        self._check_stop()
        return Resharded(old, new, target, records)

    def _claim(self, loop: LoopId, claim: Claim) -> PositionsRow:
        """Fence the tasks of a loop, publish a claim that ends each of them for good, and return what is published."""
        self._check_stop()
        require_highest(claim, visible_row(self._broker, loop.rows, loop.number))
        with closing(self._broker.writer(loop.transactional_id)) as writer:
            end_open(self._broker, loop, writer, claim)
            require_visible(self._broker, loop.own)
            found = newest_row(self._broker, loop.rows, loop.number)
            require_highest(claim, found)
            if found is None and loop.number == loop.shards:
                found = _combiner_row(loop.shards, claim)
            if found is None:
                raise self._no_table(loop.number)
            row = msgspec.structs.replace(found, claim=claim, step=found.step + 1)
            writer.commit([Output(loop.rows, key_of(loop.number), encode(row))])
        return row

    def _table_at(self, row: PositionsRow, target: Positions) -> Table:
        """Return the table of a shard at the target. Note what the way there from the published positions gave."""
        self._say(f"shard {row.shard} of {row.of}: reading its rows")
        loop = LoopId(self._topics, row.shard, row.of)
        settings = LoopSettings(loop, row.sum_tags, table=self._settings)
        restorer = Restorer(self._broker, settings, self._stopped)
        with closing(self._broker.source()) as source:
            table = restorer.table_at(row, None, source).table
            read_to(table, target, source, self._stopped)
        # The sums of the old layout are replaced as a whole; dead letters and events are not.
        self._letters += letters(table.outputs(), self._topics)
        self._omitted += restorer.omitted
        return table

    def _records(
        self, old: Sequence[Table], new: Layout, target: Positions, positions_row: Callable[[State], PositionsRow]
    ) -> list[Output]:
        """Return what replaces these tables, which are at the target."""
        topics, latest, obsolete = self._topics, LatestRows(), dict[tuple[Place, bytes], None]()
        for number, table in enumerate(old):
            table.publish_all()
            for row in table.rows():
                latest.add(row.key, row.value(), partition=number)
                obsolete[Place(topics.table, number), row.key] = None
        for place in (Place(topics.shards, number) for number in range(len(old)) if len(old) > 1):
            obsolete |= dict.fromkeys((place, key) for _, key in rows_of(self._broker, place, self._stopped).rows)
        found = restore(latest, shards=new.shards, sum_tags=new.sum_tags)
        self._require_complete(self._omitted + found.omitted)
        tables = [Table(state, self._settings) for state in found.states]
        for table in tables:
            for place, position in target.items():
                table.advance(str(place), position - 1, table.state.clocks.get(str(place), 0))
            table.publish_all()
        changes = [table.outputs() for table in tables]
        self._add_empty(changes, tables[0].state)
        written: list[Output] = []
        for table, changed in zip(tables, changes, strict=True):
            self._check_stop()
            written += Step(changed, table.rows(), positions_row(table.state)).records(topics)
        for output in written:
            obsolete.pop((output.place, output.key or b""), None)
        # Before the positions rows: what is deleted is of the same moment.
        return [*self._letters, *(Output(place, key, None) for place, key in obsolete), *written]

    def _require_complete(self, omitted: Sequence[LifeId]) -> None:
        if omitted:
            raise TallystreamError(
                f"topic {self._topics.table}: the rows of {len(set(omitted))} lives were too large to be written, the "
                f"first is {list(omitted[0])}: the sums would lose their counts; start the aggregator, and stop it "
                "when these lives have published, or remove them with tallystream forget."
            )

    def _check_stop(self) -> None:
        if self._stopped():
            raise StoppedError

    def _no_table(self, number: int) -> NoTableError:
        return NoTableError(
            f"topic {self._topics.table}: it has no positions of shard {number}; start the aggregator first."
        )

    def _add_empty(self, changes: Sequence[Changes], first: State) -> None:
        """Add empty sums, of the first shard, in place of those on `metrics-agg` that the table has no more."""
        known = {total.metric for each in changes for total in each.totals}
        known |= {one.metric for each in changes for one in each.shard_sums}
        for value in rows_of(self._broker, Place(self._topics.agg, 0), self._stopped).rows.values():
            try:
                metric = sums.decode(value).metric
                empty = PartialSum(metric[2])
            except (msgspec.DecodeError, KeyError):
                continue  # not written by a table
            if metric not in known and first.shards == 1:
                changes[0].totals.append(empty.row(metric, first.out_ms, first.offsets_by_topic()))
            elif metric not in known:
                changes[0].shard_sums.append(ShardSum(first.shard, metric, empty, first.out_ms))


def _combiner_row(shards: int, claim: Claim) -> PositionsRow:
    """Return the row of a combiner that has published nothing: it publishes the sums of all partial sums there are."""
    return PositionsRow(shard=shards, of=shards, claim=claim, step=1, positions={}, topics={})


def _highest(rows: Sequence[PositionsRow]) -> Positions:
    found: Positions = {}
    for row in rows:
        for place, position in by_place(row.positions).items():
            found[place] = max(position, found.get(place, 0))
    return found
