"""What a destination has acknowledged, over all lives: by identity for a new life, kept as it came till then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.reporter._since import by_identity

if TYPE_CHECKING:
    from tallystream.reporter._since import Values
    from tallystream.reporter.record import Metric


class Counted:
    """The newest values of each metric. Most of what is acknowledged is replaced by the next acknowledgement unread."""

    def __init__(self) -> None:
        self._values: Values = {}
        self._newest: dict[int, list[Metric]] = {}

    def take(self, part: int, metrics: list[Metric]) -> None:
        """Take the metrics of one part of a record; those that are missing from it keep their values."""
        last = self._newest.get(part)
        # Most records have the metrics of the last one in the same order: that is found out without their identities.
        if last is not None and _layout(last) != _layout(metrics):
            self._values.update(by_identity(last))
        self._newest[part] = metrics

    def update(self, values: Values) -> None:
        """Take single values."""
        self.values().update(values)

    def values(self) -> Values:
        """Return all of them by identity."""
        for metrics in self._newest.values():
            self._values.update(by_identity(metrics))
        self._newest.clear()
        return self._values


def _layout(metrics: list[Metric]) -> tuple[list[str], list[dict[str, str]], list[type[Metric]]]:
    return [m.name for m in metrics], [m.tags for m in metrics], [m.__class__ for m in metrics]
