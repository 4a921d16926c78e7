"""The state again, from the records of `metrics-table`: after a checkpoint was lost, or for another table of the same.

What the last batches had written may be there in part. A life's row says up to which offset it includes its part's
records, so that none is applied twice when `metrics` is read again from where the shard's record says; a life that was
on its way out is where the newest records leave it (tallystream.aggregator.table.published has the order).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.aggregator.table.kinds import STORED
from tallystream.aggregator.table.published import BaseRow, FoldRow, LifeId, LifeRow, MetricRow, ShardRow
from tallystream.aggregator.table.retired import Base, is_kept
from tallystream.aggregator.table.state import Leaving, Life, MetricId, Row, State
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KINDS: dict[str, type[LifeRow | BaseRow | FoldRow | ShardRow]] = {
    "life": LifeRow,
    "base": BaseRow,
    "fold": FoldRow,
    "shard": ShardRow,
}
_keys = msgspec.json.Decoder(list[object])


class Rebuilt(NamedTuple):
    """The state, the epoch of the newest writer in it, and the lives whose rows were too large to be published."""

    state: State
    epoch: int
    omitted: list[LifeId]


class RebuildError(TallystreamError):
    """The topic does not hold a table."""


class Standing:
    """The newest record of each key, by (epoch, batch): feed it the topic in offset order.

    What a replaced writer appends after the newest, or after a deletion, changes nothing.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, LifeRow | BaseRow | FoldRow | ShardRow] = {}
        self.epoch = 0
        self._deleted: set[bytes] = set()

    def take(self, key: bytes, value: bytes | None) -> None:
        """Let one record replace the one before.

        Raises:
            RebuildError: the record is not one of the table's.
        """
        if value is None:
            self.rows.pop(key, None)
            self._deleted.add(key)
            return
        try:
            kind = _keys.decode(key)[0]
            row = msgspec.json.decode(value, type=_KINDS[str(kind)])
        except (msgspec.DecodeError, KeyError, IndexError) as error:
            raise RebuildError(f"metrics-table: {key!r} is not a record of the table: {error}") from error
        known = self.rows.get(key)
        replaced = row.epoch < self.epoch and key in self._deleted
        if not replaced and (known is None or (row.epoch, row.batch) >= (known.epoch, known.batch)):
            self.rows[key] = row
        self.epoch = max(self.epoch, row.epoch)


def restore(standing: Standing, summed: Iterable[MetricId] = ()) -> Rebuilt:
    """Return the state that the records say; `summed` are the metrics that have a sum on `metrics-agg`.

    These are published anew even where nothing is left of them: a tombstone may have come in the batch that was cut
    off.

    Its offsets are those from which `metrics` has to be read on; its sums, published anew by its first batch, are exact
    once that has been read to where the table was.

    Raises:
        RebuildError: no batch was ever finished: there is nothing to start from.
    """
    rows = list(standing.rows.values())
    shard = next((row for row in rows if isinstance(row, ShardRow)), None)
    if shard is None:
        raise RebuildError("metrics-table: no finished batch is on it, so there is nothing to rebuild from.")
    building = _Building(shard)
    for metric in summed:
        building.number(metric)
    # Lists of folds that no finished batch knows: their lives will retire again, under a number that is not taken.
    unfinished = {key: row for key, row in standing.rows.items() if isinstance(row, FoldRow) and row.fold > shard.fold}
    building.state.forget = sorted(unfinished)
    building.state.fold = max([shard.fold, *(row.fold for row in unfinished.values())])
    for base in (row for row in rows if isinstance(row, BaseRow)):
        building.base(base)
    finished = (row for row in rows if isinstance(row, FoldRow) and row.fold <= shard.fold)
    folds = {LifeKey(*life): row.fold for row in finished for life in row.lives}
    parts: dict[LifeKey, list[LifeRow]] = defaultdict(list)
    for row in rows:
        if isinstance(row, LifeRow):
            parts[LifeKey(row.app, row.instance, row.life)].append(row)
    omitted = [(key.app, key.instance, key.life) for key, found in parts.items() if any(row.omitted for row in found)]
    for key, found in sorted(parts.items(), key=lambda item: (item[0].life, item[0])):  # a ULID sorts by its time
        building.life(found, folds.get(key, 0))
    return Rebuilt(building.state, standing.epoch, omitted)


class LifeKey(NamedTuple):
    """What names a life."""

    app: str
    instance: str
    life: str


class _Building:
    """A state under construction."""

    def __init__(self, shard: ShardRow) -> None:
        self.state = State(
            clocks=dict(shard.clocks),
            offsets=dict(shard.offsets),
            out_ms=shard.out_ms,
            fold=shard.fold,
            stale=shard.stale,
            records=shard.records,
            dead=shard.dead,
            retired=shard.retired,
        )
        self._numbers: dict[MetricId, int] = {}

    def base(self, row: BaseRow) -> None:
        """Add what the retired lives of one metric add up to."""
        number = self.number((row.app, row.name, row.type, tuple(sorted(row.tags.items()))))
        self.state.base[number] = Base(row.lives, tuple(row.values), row.total, row.floats, row.sketch, row.fold)

    def life(self, parts: list[LifeRow], fold: int) -> None:
        """Add a life; `fold` is the one in which it retired, 0 for none."""
        newest = max(parts, key=lambda row: row.offset)
        life = Life(
            newest.instance,
            newest.app,
            newest.life,
            f"{newest.topic}:{newest.partition}",
            newest.heard_ms,
            newest.every_ms,
            max(row.keep_ms for row in parts),
            newest.final,
            newest.living,
            {row.part: row.seq for row in parts if row.seq},
            {number: row for part in parts for number, row in self._rows(part)},
            sorted({limit for row in parts for limit in row.limits}),
            {row.part: row.offset for row in parts},
        )
        self.state.clocks.setdefault(life.partition, 0)  # no finished batch has a record of that partition
        if not fold:
            self.state.lives.setdefault(life.instance, []).append(life)
            return
        life.living = False
        life.rows = {number: row for number, row in life.rows.items() if self._is_left(number, fold)}
        gone = self.state.leaving if life.rows else self.state.deleting
        gone.append(Leaving(fold, life))

    def _is_left(self, number: int, fold: int) -> bool:
        """Tell whether a row of a life that retired in `fold` counts, and is not in the base yet."""
        base = self.state.base.get(number)
        return is_kept(self.state.metrics[number][2]) and (base is None or base.fold < fold)

    def _rows(self, part: LifeRow) -> Iterable[tuple[int, Row]]:
        for metric in part.metrics:
            number = self.number((part.app, metric.name, metric.type, tuple(sorted(metric.tags.items()))))
            seq = part.seq if metric.seq is None else metric.seq
            yield number, Row(part.part, seq, _values(metric, short=not part.life), metric.sketch)

    def number(self, metric: MetricId) -> int:
        """Return the metric's number, a new one where it has none."""
        number = self._numbers.get(metric)
        if number is None:
            number = self._numbers[metric] = len(self.state.metrics)
            self.state.metrics.append(metric)
        return number


def _values(metric: MetricRow, *, short: bool) -> tuple[int | float | None, ...]:
    names = (*STORED[metric.type], "last") if short else STORED[metric.type]
    return tuple(getattr(metric, name) for name in names)


def behind(state: State, firsts: Mapping[str, int]) -> dict[str, int]:
    """Return, for each partition whose next record has been deleted, how many are missing.

    `firsts` maps "topic:partition" → the first offset that is there.
    """
    gaps = {name: first - (state.offsets.get(name, -1) + 1) for name, first in firsts.items()}
    return {name: gap for name, gap in gaps.items() if gap > 0}
