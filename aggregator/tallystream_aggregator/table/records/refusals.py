"""What is refused of a record (rule 8). After ten dead letters of a kind the others are only counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_LETTERS = 10
"""The most dead letters of a record about single metrics, and about its other parts. One more counts the others."""


class Refusal(NamedTuple):
    """Why a record is refused, or one metric of it: `metric` is that metric as JSON text."""

    reason: str
    metric: str | None = None


class RecordRefusals:
    """What is refused of one record. At most `kept` refusals of each kind are formatted."""

    def __init__(self, kept: int = MAX_LETTERS) -> None:
        self.first: list[Refusal] = []
        self._kept = kept
        self._metrics = self._parts = 0

    def __bool__(self) -> bool:
        """Whether anything is refused."""
        return self._metrics + self._parts > 0

    @property
    def more_metrics(self) -> int:
        """How many metrics are refused besides those that are formatted."""
        return max(0, self._metrics - self._kept)

    def add(self, refusal: Refusal) -> None:
        """Add the refusal of the record, or of a part of it."""
        self._parts += 1
        if self._parts <= self._kept:
            self.first.append(refusal)

    def add_metric(self, reason: object, text: Callable[[], str]) -> None:
        """Add the refusal of a metric. `text` returns it as JSON, and is called only if a dead letter quotes it."""
        self._metrics += 1
        if self._metrics <= self._kept:
            self.first.append(Refusal(str(reason), text()))

    @property
    def room(self) -> int:
        """How many more refused metrics are formatted."""
        return max(0, self._kept - self._metrics)

    def add_decoded(self, rejected: Sequence[Refusal], more: int) -> None:
        """Add the metrics that were refused when the record was decoded: `rejected`, and `more` others."""
        self.first += rejected[: self.room]
        self._metrics += len(rejected) + more

    def letters(self) -> list[Refusal]:
        """Return the refusals that become dead letters."""
        counted = ((self.more_metrics, "metrics"), (self._parts - self._kept, "parts"))
        return [
            *self.first,
            *(Refusal(f"limit: {more} more {what} of this record are rejected") for more, what in counted if more > 0),
        ]
