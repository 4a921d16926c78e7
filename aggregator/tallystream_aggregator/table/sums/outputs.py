"""The sums of a table as its output: totals, or the partial sums of a shard for the combiner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.metric_types import STORED
from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum
from tallystream_aggregator.table.outputs import Total
from tallystream_aggregator.table.shards import ShardSum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.table.outputs import Offsets
    from tallystream_aggregator.table.state import MetricId, State
    from tallystream_aggregator.table.sums.metric_sums import MetricSums


class SumOutputs:
    """Makes the output of `sums`, the partial sums of `state`. Sums are given by their numbers."""

    def __init__(self, state: State, sums: MetricSums) -> None:
        self._state, self._sums = state, sums
        self._empty: set[MetricId] = set()

    def publish_empty(self, metrics: Iterable[MetricId]) -> None:
        """Publish those of these sums that the table lacks as empty with the next output."""
        numbers = self._sums.numbers
        self._empty.update(metric for metric in metrics if metric[2] in STORED and numbers.find(metric) < 0)

    def totals(self, numbers: set[int]) -> list[Total]:
        """Return the totals of these sums and of the empty ones, sorted."""
        identity, offsets, out_ms = self._sums.numbers.identity, self._offsets(), self._state.out_ms
        totals = [
            Total.of(identity(number), self._sums[number], out_ms, offsets) for number in sorted(numbers, key=identity)
        ]
        empty = [Total.of(metric, PartialSum(metric[2]), out_ms, offsets) for metric in self._pop_empty()]
        return sorted([*totals, *empty], key=lambda total: total.metric) if empty else totals

    def shard_sums(self, numbers: Iterable[int]) -> list[ShardSum]:
        """Return the shard's partial sums of these metrics' sums and of the empty ones."""
        numbers_of_sums = dict.fromkeys(map(self._sums.numbers.of, numbers))
        found = [(self._sums.numbers.identity(number), self._sums[number]) for number in numbers_of_sums]
        found += [(metric, PartialSum(metric[2])) for metric in self._pop_empty()]
        shard, out_ms = self._state.shard, self._state.out_ms
        return [ShardSum.of(shard, metric, partial, out_ms) for metric, partial in found]

    def _pop_empty(self) -> list[MetricId]:
        empty, self._empty = sorted(self._empty), set()
        return empty

    def _offsets(self) -> Offsets:
        offsets: Offsets = {}
        for partition, offset in self._state.offsets.items():
            topic, _, index = partition.rpartition(":")
            offsets.setdefault(topic, {})[index] = offset
        return offsets
