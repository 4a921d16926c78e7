"""The sums of a table with several shards: what each shard says replaces what it said before, and is summed.

A changelog table once more, of one row per metric and shard, and as pure. Every value is absolute, so that a batch
that runs again says the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.kinds import saturated
from tallystream.aggregator.table.outputs import Event, Offsets, Total
from tallystream.aggregator.table.partial import Partial
from tallystream.aggregator.table.shards import ShardSum, group_of
from tallystream.aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream.aggregator.table.state import MetricId, State


class Combiner(msgspec.Struct, array_like=True):
    """What the shards say of one metric; `overflowed` where the sum is beyond its range."""

    said: dict[int, ShardSum]
    overflowed: bool = False


class Combined:
    """The metrics of one group of combiners. `dirty` are those that have changed since they were last stored.

    `published` is False where a rebuilt group has not published its sums yet: the next batch publishes all.
    """

    def __init__(self, metrics: dict[MetricId, Combiner] | None = None, *, published: bool = True) -> None:
        self.metrics = metrics if metrics is not None else {}
        self.published = published
        self.dirty: set[MetricId] = set()
        self._touched: set[MetricId] = set()

    def take(self, said: Iterable[ShardSum]) -> None:
        """Let what shards say replace what they said before."""
        for one in said:
            self.metrics.setdefault(one.metric, Combiner({})).said[one.shard] = one
            self._touched.add(one.metric)

    def changes(self) -> tuple[list[Total], list[Event]]:
        """Return the sums that changed since the last call, by metric, and the events; then forget them."""
        touched = self._touched if self.published else set(self.metrics)
        totals, events = [], []
        for metric in sorted(touched):
            total = self._combine(metric)
            totals.append(total)
            combiner = self.metrics[metric]
            if total.overflow and not combiner.overflowed:
                events.append(Event("overflow", metric[0], "", "", total.ts_ms, detail=metric[1]))
            combiner.overflowed = total.overflow
        self.dirty |= touched
        self._touched, self.published = set(), True
        return totals, events

    def _combine(self, metric: MetricId) -> Total:
        combiner = self.metrics[metric]
        partial, offsets, out_ms = Partial(metric[2]), dict[str, dict[str, int]](), 0
        for one in combiner.said.values():
            partial.merge(one.partial())
            out_ms = max(out_ms, one.out_ms)
            _raise(offsets, one.offsets)
        summed, overflow = saturated(partial.totals())
        summed |= partial.quantiles()
        counts = (partial.lives, partial.instances, out_ms, offsets, partial.forgotten)
        return Total(metric, summed, *counts, overflow)


def _raise(offsets: Offsets, more: Offsets) -> None:
    # Shards take the records of a batch together: what one of them has reached, all of them have.
    for topic, partitions in more.items():
        known = offsets.setdefault(topic, {})
        for partition, offset in partitions.items():
            known[partition] = max(offset, known.get(partition, -1))


def combine(states: Sequence[State]) -> list[Combined]:
    """Return the groups of combiners of the shards with these states, as they begin: nothing is published yet."""
    groups = [Combined(published=False) for _ in states]
    for state in states:
        for said in Table(state).said(range(len(state.metrics))):
            groups[group_of(said.metric, len(states))].take([said])
    return groups
