"""Make the state again from the records of `metrics-table`, after a loss or to change the number of shards.

The rows are an exact cut: they include the records up to the offsets in the record of their shard, and no others.
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
    from collections.abc import Iterable

    from tallystream_aggregator.table.sum_tags import SumTags


class Rebuilt(NamedTuple):
    """The states of the shards, and the lives whose rows were too large to publish."""

    states: list[State]
    omitted: list[LifeId]


def restore(
    latest: LatestRows,
    summed: Iterable[MetricId] = (),
    *,
    shards: int | None = None,
    sum_tags: SumTags | None = None,
) -> Rebuilt:
    """Return the states that `latest` has the rows of.

    `summed` are the metrics that have a sum on `metrics-agg`. They are published again even if no life has them any
    more. `shards` splits the table into more shards than it has; all of its shards must be at the same positions then.
    `sum_tags` are the tags that the sums have from now on, None for those that they have.

    Raises:
        RebuildError: there are no rows; or a record is not one of the table's, or belongs to none of its shards.
    """
    latest.require_readable()
    rows = {row.shard: row for _, row in latest.of_kind(ShardRow)}
    if not rows:
        raise RebuildError("metrics-table: it has no rows, so there is nothing to make the table from.")
    one_of = next(iter(rows.values()))
    new = shards or one_of.shards
    builders = [_ShardBuilder(number, new, rows.get(number)) for number in range(new)]
    for one in builders:
        one.state.sum_tags = one_of.sum_tags if sum_tags is None else sum_tags
        if one.state.shard not in rows:
            one.state.clocks, one.state.offsets = dict(one_of.clocks), dict(one_of.offsets)
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
    return Rebuilt([one.state for one in builders], omitted)


class _ShardBuilder:
    """Builds the state of a shard from its rows."""

    def __init__(self, shard: int, shards: int, row: ShardRow | None) -> None:
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
        self._numbers: dict[MetricId, int] = {}
        self._layouts = Layouts(self.state.metrics)

    def add_forgotten(self, row: ForgottenRow) -> None:
        """Add the sums of the forgotten lives of one metric."""
        number = self.add_metric((row.app, row.name, row.type, tuple(sorted(row.tags.items()))))
        self.state.forgotten_sums[number] = ForgottenSums(row.lives, row.held)

    def add_life(self, parts: list[LifeRow]) -> None:
        """Add a life."""
        # All parts have the life's present partition, so the newest record of it is that with the highest offset.
        newest = max(parts, key=lambda row: row.offset)
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
            {row.part: row.offset for row in parts if row.offset >= 0},
            complete=newest.complete,
        )
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
