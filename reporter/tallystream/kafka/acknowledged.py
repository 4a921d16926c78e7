"""What a destination has acknowledged, over all lives: by identity for a new life, kept as it came till then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.baselines import by_identity

if TYPE_CHECKING:
    from tallystream.baselines import Values
    from tallystream.record import Metric


class Counted:
    """The newest values of each metric. Most of what is acknowledged is replaced by the next acknowledgement unread."""

    def __init__(self) -> None:
        self._values: Values = {}
        self._newest: dict[int, tuple[list[Metric], object]] = {}

    def take(self, part: int, metrics: list[Metric], layout: object) -> None:
        """Take the metrics of one part of a record; those that are missing from it keep their values.

        Two of one part with the same `layout`, the same object, are of the same metrics in the same order: so much need
        not be looked at while it is the application's turn to run.
        """
        last = self._newest.get(part)
        if last is not None and last[1] is not layout:
            self._values.update(by_identity(last[0]))
        self._newest[part] = metrics, layout

    def update(self, values: Values) -> None:
        """Take single values."""
        self.values().update(values)

    def values(self) -> Values:
        """Return all of them by identity."""
        for metrics, _ in self._newest.values():
            self._values.update(by_identity(metrics))
        self._newest.clear()
        return self._values
