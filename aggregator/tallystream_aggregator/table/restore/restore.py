"""The state again, from the records of `metrics-table`: after a checkpoint was lost, or for another table of the same.

What the last batches had written may be there in part. A life's row says up to which offset it includes its part's
records, so that none is applied twice when `metrics` is read again from where the shard's record says; a life that was
being forgotten is where the newest records leave it (tallystream_aggregator.table.rows has the order). All other
lives begin in memory: those whose time has come retire again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.table.arithmetic.metric_types import STORED
from tallystream_aggregator.table.arithmetic.partial_sums import Base, is_kept
from tallystream_aggregator.table.arithmetic.sketches import encode
from tallystream_aggregator.table.layouts import Layouts
from tallystream_aggregator.table.restore.latest_rows import LatestRows, RebuildError, chunk_in, foreign, shard_in
from tallystream_aggregator.table.rows import BaseRow, FoldRow, LifeRow, MetricRow, ShardRow
from tallystream_aggregator.table.shards import shard_of
from tallystream_aggregator.table.state import Life, LifeId, MetricId, Retiring, Row, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Rebuilt(NamedTuple):
    """The shards' states, the epoch of their newest writer, and the lives whose rows were too large to be published."""

    states: list[State]
    epoch: int
    omitted: list[LifeId]


def restore(
    standing: LatestRows,
    summed: Iterable[MetricId] = (),
    *,
    shards: int | None = None,
    finished: Mapping[str, int] | None = None,
) -> Rebuilt:
    """Return the states that the records say; `summed` are the metrics that have a sum on `metrics-agg`.

    These are published again even where nothing is left of them: a tombstone may have come in the batch that was cut
    off. `shards` cuts the table into more shards than it has. `finished` maps partition → the next offset after the
    last batch that is known to be finished: every shard includes what lies before it.

    The states' offsets are those from which `metrics` has to be read on; the sums, published again by their first
    batch, are exact once that has been read to where the table was.

    Raises:
        RebuildError: no batch was ever finished, so there is nothing to start from; or there would be fewer shards, or
            more though the last batch is not known to be finished; or a record is of no shard of the table.
    """
    known = {row.shard: row for _, row in standing.of_kind(ShardRow)}
    if not known:
        raise RebuildError("metrics-table: no finished batch is on it, so there is nothing to rebuild from.")
    newest = max(known.values(), key=lambda row: (row.epoch, row.batch))
    now = newest.shards
    wanted = shards or now
    included = {name: end - 1 for name, end in (finished or {}).items()}
    building = [_Building(number, wanted, known.get(number), included) for number in range(wanted)]
    for one in building:
        cut = (newest.since, newest.before) if wanted == now else (standing.epoch + 1, (now, newest.since))
        one.state.since, one.state.before = cut
    if wanted != now:
        _require_room(now, wanted, known.values(), included, is_cut=standing.is_cut())
    _share_clocks(building, known)
    for metric in summed:
        building[0].number(metric)
    for key, base in standing.of_kind(BaseRow):
        if shard_in(key) >= wanted:
            raise foreign(key, f"the table has {wanted} shards")
        building[shard_in(key)].base(base)
    folds = _folds(standing, building)
    parts: dict[LifeKey, list[LifeRow]] = defaultdict(list)
    for _, row in standing.of_kind(LifeRow):
        parts[LifeKey(row.app, row.instance, row.life)].append(row)
    omitted = [(key.app, key.instance, key.life) for key, found in parts.items() if any(row.omitted for row in found)]
    for life, found in sorted(parts.items(), key=lambda item: (item[0].life, item[0])):  # a ULID sorts by its time
        home, fold = folds.get(life, (shard_of(life.instance.encode(), wanted), 0))
        building[home].life(found, fold)
    return Rebuilt([one.state for one in building], standing.epoch, omitted)


def _share_clocks(building: Iterable[_Building], known: Mapping[int, ShardRow]) -> None:
    """Give the clocks of all shards to those that have not begun since the table was cut.

    A shard that has begun may have to read on from before the others' clocks.
    """
    for one in building:
        row, state = known.get(one.state.shard), one.state
        if state.since and (row is None or (row.shards, row.since) != (state.shards, state.since)):
            one.know_the_time(known.values())


def _folds(standing: LatestRows, building: Sequence[_Building]) -> dict[LifeKey, tuple[int, int]]:
    """Return the lives that are being forgotten: each with its shard and the number of its list."""
    folds: dict[LifeKey, tuple[int, int]] = {}
    for key, row in sorted(standing.of_kind(FoldRow), key=lambda found: chunk_in(found[0])):
        number = shard_in(key)
        if building[number].knows(row.fold):
            building[number].keep_list(row.fold, row.lives)
            folds |= {LifeKey(*life): (number, row.fold) for life in row.lives}
        else:
            building[number].delete(row.fold, key)
    return folds


def _require_room(
    now: int, wanted: int, known: Iterable[ShardRow], included: Mapping[str, int], *, is_cut: bool
) -> None:
    if wanted < now:
        raise RebuildError(f"--shards {wanted}: the table has {now}; it can be cut into more, never into fewer.")
    if not is_cut:
        raise RebuildError(
            f"--shards {wanted}: not every shard has written its rows since the table was cut into {now}; start the "
            "aggregator until it has caught up, stop it, and run this again."
        )
    beyond = [
        name
        for row in known
        for name, offset in row.offsets.items()
        if row.shard < now and offset > included.get(name, -1)
    ]
    if beyond:
        raise RebuildError(
            f"--shards {wanted}: the last batch is not known to be finished; run tallystream rebuild without the "
            "option, then the aggregator until it has caught up, stop it, and run this again."
        )


class LifeKey(NamedTuple):
    """What names a life."""

    app: str
    instance: str
    life: str


class _Building:
    """A state under construction."""

    def __init__(self, shard: int, shards: int, row: ShardRow | None, included: Mapping[str, int]) -> None:
        self.state = State(shard=shard, shards=shards)
        if row is not None:
            self.state = State(
                clocks=dict(row.clocks),
                offsets=dict(row.offsets),
                judged=dict(row.judged),
                out_ms=row.out_ms,
                fold=row.fold,
                stale=row.stale,
                records=row.records,
                dead=row.dead,
                forgotten=row.forgotten,
                shard=shard,
                shards=shards,
            )
        self._fold = self.state.fold
        for name, offset in included.items():
            self.state.offsets[name] = max(offset, self.state.offsets.get(name, -1))
        self.state.included = dict(self.state.offsets)
        self._numbers: dict[MetricId, int] = {}
        self._layouts = Layouts(self.state.metrics)

    def know_the_time(self, rows: Iterable[ShardRow]) -> None:
        """Take the clocks that any shard has seen: a partition's time is one."""
        for row in rows:
            for name, clock in row.clocks.items():
                self.state.clocks[name] = max(clock, self.state.clocks.get(name, 0))
            for name, time in row.judged.items():
                self.state.judged[name] = max(time, self.state.judged.get(name, 0))

    def knows(self, fold: int) -> bool:
        """Tell whether a list is one of a finished batch."""
        return fold <= self._fold

    def keep_list(self, fold: int, lives: list[LifeId]) -> None:
        """Add a record of a list."""
        self.state.lists[fold] = [*self.state.lists.get(fold, []), *lives]

    def delete(self, fold: int, key: bytes) -> None:
        """Have the list of an unfinished batch deleted: its lives are forgotten again, under another number."""
        self.state.forget = sorted([*self.state.forget, key])
        self.state.fold = max(self.state.fold, fold)

    def base(self, row: BaseRow) -> None:
        """Add what the forgotten lives of one metric add up to."""
        number = self.number((row.app, row.name, row.type, tuple(sorted(row.tags.items()))))
        self.state.base[number] = Base(row.lives, row.held, row.fold)

    def life(self, parts: list[LifeRow], fold: int) -> None:
        """Add a life; `fold` is the list by which it is being forgotten, 0 for none."""
        # A metric that changed its part may be in two of them, where a batch was cut off: in the newer one it counts.
        parts = sorted(parts, key=lambda row: (row.epoch, row.batch, row.offset))
        newest = parts[-1]
        place = (newest.topic, newest.partition)
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
            # An offset of a partition that the instance has left says nothing about the one it is in.
            {row.part: row.offset for row in parts if (row.topic, row.partition) == place},
        )
        self.state.clocks.setdefault(life.partition, 0)  # no finished batch has a record of that partition
        if not fold:
            judged_ms = self.state.judged.get(life.partition, 0)
            life.living = life.living and (life.deadline_ms > judged_ms or newest.judged >= judged_ms)
            for part, seq in life.parts.items():
                numbers = [number for number, row in life.rows.items() if (row.part, row.seq) == (part, seq)]
                self._layouts.close(life, part, numbers)
            self.state.lives.setdefault(life.instance, []).append(life)
            return
        life.living = False
        life.rows = {number: row for number, row in life.rows.items() if self._is_left(number, fold)}
        gone = self.state.leaving if life.rows else self.state.deleting
        gone.append(Retiring(fold, life))

    def _is_left(self, number: int, fold: int) -> bool:
        """Tell whether a row of a life that the list `fold` has counts, and is not in the base yet."""
        base = self.state.base.get(number)
        return is_kept(self.state.metrics[number][2]) and (base is None or base.fold < fold)

    def _rows(self, part: LifeRow) -> Iterable[tuple[int, Row]]:
        for metric in part.metrics:
            number = self.number((part.app, metric.name, metric.type, tuple(sorted(metric.tags.items()))))
            seq = part.seq if metric.seq is None else metric.seq
            sketch = None if metric.sketch is None else encode(metric.sketch)
            yield number, Row(part.part, seq, _values(metric, short=not part.life), sketch)

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


def included_by_all(states: Iterable[State]) -> dict[str, int]:
    """Return, for each partition, the last offset that every shard includes, -1 where one of them names none."""
    known = list(states)
    names = {name for state in known for name in state.offsets}
    return {name: min(state.offsets.get(name, -1) for state in known) for name in names}


def behind(offsets: Mapping[str, int], firsts: Mapping[str, int]) -> dict[str, int]:
    """Return, for each partition whose next record has been deleted, how many are missing.

    `firsts` maps "topic:partition" → the first offset that is there.
    """
    gaps = {name: first - (offsets.get(name, -1) + 1) for name, first in firsts.items()}
    return {name: gap for name, gap in gaps.items() if gap > 0}
