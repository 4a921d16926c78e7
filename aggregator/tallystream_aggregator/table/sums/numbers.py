"""The sum of each metric, by number. Metrics that differ only in tags that the sums lack have one sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, KeysView, Sequence

    from tallystream_aggregator.table.state import MetricId
    from tallystream_aggregator.table.sum_tags import SumTags


def sum_of(metric: MetricId, tags: SumTags) -> MetricId:
    """Return the identity of a metric's sum."""
    app, name, kind, own = metric
    return app, name, kind, tags.of(name, kind, own)


class SumNumbers:
    """The numbers of the sums of `metrics`, which may grow. The number of a sum is that of its first metric.

    `are_shared` tells whether metrics can share a sum. If not, a sum has the number and the identity of its metric.
    """

    def __init__(self, metrics: Sequence[MetricId], tags: SumTags) -> None:
        self.are_shared = not tags.has_all
        self.identity: Callable[[int], MetricId] = self._identity if self.are_shared else metrics.__getitem__
        self._all_metrics, self._tags = metrics, tags
        self._sums: list[int] = []
        self._metrics: dict[MetricId, list[int]] = {}

    def of(self, number: int) -> int:
        """Return the number of a metric's sum."""
        if not self.are_shared:
            return number
        if number >= len(self._sums):
            self._add_new()
        return self._sums[number]

    def of_all(self, numbers: set[int]) -> set[int]:
        """Return the numbers of the sums of these metrics."""
        return {self.of(number) for number in numbers} if self.are_shared else numbers

    def metrics_of(self, sums: set[int]) -> set[int]:
        """Return the numbers of all metrics of these sums."""
        if not self.are_shared:
            return sums
        return {number for each in sums for number in self._metrics[self.identity(each)]}

    def among(self, metrics: KeysView[int], sums: set[int]) -> Iterable[int]:
        """Return those of `metrics` that have one of these sums."""
        if not self.are_shared:
            return sums & metrics
        return [number for number in metrics if self.of(number) in sums]

    def find(self, identity: MetricId) -> int:
        """Return the number of the sum with this identity, or -1 if there is none. Sums must be shared."""
        self._add_new()
        return self._metrics.get(identity, [-1])[0]

    def _identity(self, number: int) -> MetricId:
        return sum_of(self._all_metrics[number], self._tags)

    def _add_new(self) -> None:
        for number in range(len(self._sums), len(self._all_metrics)):
            metrics = self._metrics.setdefault(self.identity(number), [])
            metrics.append(number)
            self._sums.append(metrics[0])
