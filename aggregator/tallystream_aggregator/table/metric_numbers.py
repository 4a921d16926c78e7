"""The numbers of the metrics of a shard, by identity, and those that a forget record names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.records.decode import Forget

FEW = 16
"""Up to so many metrics with one name are visited one by one."""

Term = tuple[str, ...]
"""An app, a type or a tag that a metric has."""


class MetricNumbers:
    """The numbers of metrics by name.

    The metrics with a name are divided by app, type and tag when a forget record first asks for some of many, and from
    then on when they come and go. So such a record visits what it names, and not all metrics with the name.
    """

    def __init__(self, metrics: Mapping[int, MetricId]) -> None:
        self._numbers: dict[str, dict[MetricId, int]] = {}
        self._divided: dict[str, dict[Term, set[int]]] = {}
        for number, metric in metrics.items():
            self.add(metric, number)

    def of(self, metric: MetricId) -> int:
        """Return the number of a metric, or -1 if it is new."""
        known = self._numbers.get(metric[1])
        return -1 if known is None else known.get(metric, -1)

    def add(self, metric: MetricId, number: int) -> None:
        """Add a metric."""
        self._numbers.setdefault(metric[1], {})[metric] = number
        if metric[1] in self._divided:
            self._divide(metric, number)

    def remove(self, metric: MetricId) -> None:
        """Remove a metric."""
        name = metric[1]
        number = self._numbers[name].pop(metric)
        for term in _terms(metric) if name in self._divided else ():
            self._divided[name][term].remove(number)
            if not self._divided[name][term]:
                del self._divided[name][term]
        if not self._numbers[name]:
            del self._numbers[name]
            self._divided.pop(name, None)

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
