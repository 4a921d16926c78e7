"""The metrics of a shard: their numbers, which of them nothing has, and those that a forget record names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.limits import size_of_metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.limits import TableSize
    from tallystream_aggregator.table.records.decode import Forget

FEW = 16
"""Up to so many metrics with one name are visited one by one."""

Term = tuple[str, ...]
"""An app, a type or a tag that a metric has."""


class TableMetrics:
    """The metrics in `listed`, by number, which it changes in place.

    TableMetrics that nothing has are `unused`: they no longer count in the size of the table.

    The metrics with a name are divided by app, type and tag when a forget record first asks for some of many, and from
    then on when they come and go. So such a record visits what it names, and not all metrics with the name.
    """

    def __init__(self, listed: dict[int, MetricId], size: TableSize) -> None:
        self.listed, self._size = listed, size
        self._next = max(listed, default=-1) + 1
        self.unused: set[int] = set()
        self._stored = self._next  # the metrics from here on are new since the state was stored
        self._dropped: set[int] = set()  # of the others
        self._numbers: dict[str, dict[MetricId, int]] = {}
        self._divided: dict[str, dict[Term, set[int]]] = {}
        for number, metric in listed.items():
            self._name(metric, number)
            size.add(metric[0], size_of_metric(metric))

    def of(self, metric: MetricId) -> int:
        """Return the number of a metric, or -1 if it is new."""
        known = self._numbers.get(metric[1])
        return -1 if known is None else known.get(metric, -1)

    def add(self, metric: MetricId) -> int:
        """Add a new metric, which nothing has yet, and return its number."""
        number, self._next = self._next, self._next + 1
        self.listed[number] = metric
        self.unused.add(number)
        self._name(metric, number)
        return number

    def is_used(self, number: int) -> bool:
        """Tell whether something has a metric. `number` is -1 if it is new."""
        return number >= 0 and number not in self.unused

    def use(self, number: int) -> None:
        """Note that something has the metric. The caller counts its size if nothing had it."""
        self.unused.discard(number)

    def release(self, number: int) -> None:
        """Note that nothing has the metric any more."""
        if number not in self.unused:
            self.unused.add(number)
            metric = self.listed[number]
            self._size.add(metric[0], -size_of_metric(metric))

    def drop_unused(self) -> None:
        """Drop the metrics that nothing has."""
        for number in self.unused:
            self._remove(self.listed.pop(number))
        self._dropped |= self.unused
        self.unused = set()

    def pop_changes(self) -> tuple[dict[int, MetricId], list[int]]:
        """Return the metrics that are new since the last call, and the numbers of those that are gone."""
        new = range(self._stored, self._next)
        added = {number: self.listed[number] for number in new if number in self.listed}
        gone, self._dropped, self._stored = list(self._dropped), set(), self._next
        return added, gone

    def named(self, forget: Forget) -> set[int]:
        """Return the numbers of the metrics that a forget record removes."""
        name = forget.metric or ""
        known = self._numbers.get(name, {})
        if len(known) <= FEW:
            return {number for metric, number in known.items() if forget.has_metric(metric)}
        asked = (("app", forget.app), ("type", forget.type))
        terms: list[Term] = [(what, text) for what, text in asked if text is not None]
        terms += [("tag", *tag) for tag in forget.tags.items()]
        if not terms:
            return set(known.values())
        if name not in self._divided:
            self._divided[name] = {}
            for metric, number in known.items():
                self._divide(metric, number)
        return set.intersection(*sorted((self._divided[name].get(term, set()) for term in terms), key=len))

    def _name(self, metric: MetricId, number: int) -> None:
        self._numbers.setdefault(metric[1], {})[metric] = number
        if metric[1] in self._divided:
            self._divide(metric, number)

    def _remove(self, metric: MetricId) -> None:
        name = metric[1]
        number = self._numbers[name].pop(metric)
        for term in _terms(metric) if name in self._divided else ():
            self._divided[name][term].remove(number)
            if not self._divided[name][term]:
                del self._divided[name][term]
        if not self._numbers[name]:
            del self._numbers[name]
            self._divided.pop(name, None)

    def _divide(self, metric: MetricId, number: int) -> None:
        divided = self._divided[metric[1]]
        for term in _terms(metric):
            divided.setdefault(term, set()).add(number)


def _terms(metric: MetricId) -> Iterator[Term]:
    app, _, kind, tags = metric
    yield "app", app
    yield "type", kind
    for tag in tags:
        yield "tag", *tag
