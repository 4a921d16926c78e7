"""The interface of a bridge to the metrics of another library."""

from __future__ import annotations

from math import floor, isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream import record


class Reading(NamedTuple):
    """One metric of a library: counts and sums are those of the whole process, and counts are whole numbers.

    `began` is the time from which the library counts, epoch seconds. It increases when the library resets the count.
    `stream` distinguishes counters or histograms of the source with one name and the same tags: they are added up.
    """

    metric: record.Metric
    began: float | None = None
    stream: str = ""


class Source(Protocol):
    """A source of metrics that can be read repeatedly: `registry.add_source(source)`.

    `kind` is one word that identifies the source in the log and in the counter `tallystream.reporter.source.failed`.
    Reading must not change anything. A registry reads it at each snapshot, from any thread, but not concurrently, and
    once in the child of a fork.
    """

    @property
    def kind(self) -> str:
        """The library's name, such as prometheus."""

    def read(self) -> Iterable[Reading]:
        """Return the current metrics. An error ends this reading; the metrics returned before it are reported."""


def to_integer(value: float) -> int:
    """Return a count, rounded down to a whole number. NaN and infinity become -1, which is refused later."""
    return floor(value) if isfinite(value) else -1
