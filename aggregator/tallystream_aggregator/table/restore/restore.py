"""Rebuild the state from the records of `metrics-table`, after a checkpoint was lost or to change the number of shards.

The topic may have only a part of the records of the last batches. The row of a life has the offset up to which it
includes the records of its part, so no record is applied twice when `metrics` is read again from the offsets of the
shard's record.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.table.arithmetic.metric_types import STORED
from tallystream_aggregator.table.arithmetic.partial_sums import ForgottenSums
from tallystream_aggregator.table.arithmetic.sketches import encode
from tallystream_aggregator.table.layouts import Layouts
from tallystream_aggregator.table.restore.latest_rows import (
    LatestRows,
    RebuildError,
    foreign_record_error,
    shard_in,
)
from tallystream_aggregator.table.rows import ForgottenRow, LifeRow, MetricRow, ShardRow
from tallystream_aggregator.table.shards import shard_of
from tallystream_aggregator.table.state import Life, LifeId, MetricId, Row, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.table.sum_tags import SumTags


class Rebuilt(NamedTuple):
    """The states of the shards, the epoch of the newest writer, and the lives whose rows were too large to publish."""

    states: list[State]
    epoch: int
    omitted: list[LifeId]


def restore(
    latest: LatestRows,
    summed: Iterable[MetricId] = (),
    *,
    shards: int | None = None,
    finished: Mapping[str, int] | None = None,
    sum_tags: SumTags | None = None,
) -> Rebuilt:
    """Return the states that `latest` has the rows of.

    `summed` are the metrics that have a sum on `metrics-agg`. They are published again even if no life has them any
    more: the last batch may have had a tombstone. `shards` splits the table into more shards than it has. `finished`
    maps partition → the next offset after the last batch that is known to be finished: every shard includes all
    records before it. `sum_tags` are the tags that the sums have from now on, None for those that they have.

    `metrics` has to be read again from the offsets of the states. The first batch publishes all sums; they are exact
    when the topic has been read up to where the table was.

    Raises:
        RebuildError: no batch was ever finished; or the table has more shards than `shards`, or fewer while the last
            batch is not known to be finished; or a record is not one of the table's, or belongs to none of its shards.
    """
    latest.require_readable()
    rows = {row.shard: row for _, row in latest.of_kind(ShardRow)}
    if not rows:
        raise RebuildError("metrics-table: no finished batch is on it, so there is nothing to rebuild from.")
    newest = max(rows.values(), key=lambda row: (row.epoch, row.batch))
    old = newest.shards
    new = shards or old
    included = {name: end - 1 for name, end in (finished or {}).items()}
    builders = [_ShardBuilder(number, new, rows.get(number), included) for number in range(new)]
    for one in builders:
        split = (newest.since, newest.before) if new == old else (latest.epoch + 1, (old, newest.since))
        one.state.since, one.state.before = split
        one.state.sum_tags = newest.sum_tags if sum_tags is None else sum_tags
    if new != old:
        _require_splittable(old, new, rows.values(), included, is_split_complete=latest.is_split_complete())
    _distribute_clocks(builders, rows, included)
    for metric in summed:
        builders[0].add_sum(metric)
    for key, forgotten_sums in latest.of_kind(ForgottenRow):
        shard = shard_in(key)
        if shard >= new:
            raise foreign_record_error(shard, key, f"the table has {new} shards")
        builders[shard].add_forgotten(forgotten_sums)
    parts: dict[LifeId, list[LifeRow]] = defaultdict(list)
    for _, row in latest.of_kind(LifeRow):
        parts[row.app, row.instance, row.life].append(row)
    omitted = [life for life, found in parts.items() if any(row.omitted for row in found)]
    for life, found in sorted(parts.items(), key=lambda item: (item[0][2], item[0])):  # ULIDs sort by time
        builders[shard_of(life[1].encode(), new)].add_life(found)
    return Rebuilt([one.state for one in builders], latest.epoch, omitted)


def _distribute_clocks(
    builders: Iterable[_ShardBuilder], rows: Mapping[int, ShardRow], included: Mapping[str, int]
) -> None:
    """Give the clocks of all shards to those that have written no record since the table was split.

    The clock of an unfinished batch applies to its shard alone, because another shard may read earlier records again.
    """
    for one in builders:
        split = one.state.shards, one.state.since
        since = {shard: row for shard, row in rows.items() if (row.shards, row.since) == split}
        if one.state.before is None or one.state.shard in since:
            continue
        for shard, row in rows.items():
            finished = {name for name in row.clocks if row.offsets.get(name, -1) <= included.get(name, -1)}
            one.raise_clocks(row, finished if shard in since else row.clocks)


def _require_splittable(
    old: int, new: int, rows: Iterable[ShardRow], included: Mapping[str, int], *, is_split_complete: bool
) -> None:
    if new < old:
        raise RebuildError(f"--shards {new}: the table has {old}; it can be split into more, never into fewer.")
    if not is_split_complete:
        raise RebuildError(
            f"--shards {new}: not every shard has written its rows since the table was split into {old}; start the "
            "aggregator until it has caught up, stop it, and run this again."
        )
    if any(offset > included.get(name, -1) for row in rows if row.shard < old for name, offset in row.offsets.items()):
        raise RebuildError(
            f"--shards {new}: the last batch is not known to be finished; run tallystream rebuild without the "
            "option, then the aggregator until it has caught up, stop it, and run this again."
        )


class _ShardBuilder:
    """Builds the state of a shard from its rows."""

    def __init__(self, shard: int, shards: int, row: ShardRow | None, included: Mapping[str, int]) -> None:
        self.state = State(shard=shard, shards=shards)
        if row is not None:
            self.state = State(
                clocks=dict(row.clocks),
                offsets=dict(row.offsets),
                stale=row.stale,
                records=row.records,
                dead=row.dead,
                forgotten=row.forgotten,
                shard=shard,
                shards=shards,
            )
        for name, offset in included.items():
            self.state.offsets[name] = max(offset, self.state.offsets.get(name, -1))
        self.state.included = dict(self.state.offsets)
        self._numbers: dict[MetricId, int] = {}
        self._layouts = Layouts(self.state.metrics)

    def raise_clocks(self, row: ShardRow, names: Iterable[str]) -> None:
        """Raise the clocks of these partitions to those in the record of a shard."""
        clocks = self.state.clocks
        clocks.update((name, max(row.clocks[name], clocks.get(name, 0))) for name in names if name in row.clocks)

    def add_forgotten(self, row: ForgottenRow) -> None:
        """Add the sums of the forgotten lives of one metric."""
        number = self.add_metric((row.app, row.name, row.type, tuple(sorted(row.tags.items()))))
        self.state.forgotten_sums[number] = ForgottenSums(row.lives, row.held)

    def add_life(self, parts: list[LifeRow]) -> None:
        """Add a life."""
        # If the last batch was written only in part, a metric may be in two parts of a life. The newer one counts.
        parts = sorted(parts, key=lambda row: (row.epoch, row.batch, row.offset))
        newest = parts[-1]
        partition = (newest.topic, newest.partition)
        life = Life(
            newest.instance,
            newest.app,
            newest.life,
            f"{newest.topic}:{newest.partition}",
            newest.last_seen_ms,
            newest.every_ms,
            max(row.keep_ms for row in parts),
            newest.final,
            newest.living,
            {row.part: row.seq for row in parts if row.seq},
            {number: row for part in parts for number, row in self._rows(part)},
            sorted({limit for row in parts for limit in row.limits}),
            # Offsets of a partition that the instance has left do not apply to its present partition.
            {row.part: row.offset for row in parts if row.offset >= 0 and (row.topic, row.partition) == partition},
            complete=newest.complete,
        )
        clock = self.state.clocks.get(life.partition, 0)
        if max(life.offsets.values(), default=-1) <= self.state.offsets.get(life.partition, -1):
            clock = max(clock, life.last_seen_ms)
        self.state.clocks[life.partition] = clock
        for part, seq in life.parts.items():
            numbers = [number for number, row in life.rows.items() if (row.part, row.seq) == (part, seq)]
            self._layouts.rows_to_block(life, part, numbers)
        self.state.lives.setdefault(life.instance, []).append(life)

    def _rows(self, part: LifeRow) -> Iterable[tuple[int, Row]]:
        for metric in part.metrics:
            number = self.add_metric((part.app, metric.name, metric.type, tuple(sorted(metric.tags.items()))))
            seq = part.seq if metric.seq is None else metric.seq
            sketch = None if metric.sketch is None else encode(metric.sketch)
            yield number, Row(part.part, seq, _values(metric, short=not part.life), sketch)

    def add_sum(self, metric: MetricId) -> None:
        """Add a sum that is on `metrics-agg`."""
        if self.state.sum_tags.has_all:
            self.add_metric(metric)
        else:
            self.state.emptied.append(metric)

    def add_metric(self, metric: MetricId) -> int:
        """Return the number of a metric. A new metric gets the next number."""
        number = self._numbers.get(metric)
        if number is None:
            number = self._numbers[metric] = len(self.state.metrics)
            self.state.metrics.append(metric)
        return number


def _values(metric: MetricRow, *, short: bool) -> tuple[int | float | None, ...]:
    names = (*STORED[metric.type], "last") if short else STORED[metric.type]
    return tuple(getattr(metric, name) for name in names)


def included_by_all(states: Iterable[State]) -> dict[str, int]:
    """Return, for each partition, the last offset that every shard includes, or -1 if a shard includes none."""
    known = list(states)
    names = {name for state in known for name in state.offsets}
    return {name: min(state.offsets.get(name, -1) for state in known) for name in names}


def missing_records(offsets: Mapping[str, int], firsts: Mapping[str, int]) -> dict[str, int]:
    """Return the number of missing records of each partition whose next record has been deleted.

    `firsts` maps "topic:partition" → the first offset that the topic still has.
    """
    gaps = {name: first - (offsets.get(name, -1) + 1) for name, first in firsts.items()}
    return {name: gap for name, gap in gaps.items() if gap > 0}
