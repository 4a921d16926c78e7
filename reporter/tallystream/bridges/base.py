"""What another library counts in the process, for a registry to report beside its own metrics."""

from __future__ import annotations

from math import floor, isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream import record


class Reading(NamedTuple):
    """One metric as its library has it: counts and sums of the whole process, a count as a whole number.

    `began` is when the library began to count it, epoch seconds; it moves on when the library begins again at zero.
    """

    metric: record.Metric
    began: float | None = None


class Source(Protocol):
    """Something that can be read again and again: `registry.add_source(source)`.

    `kind` is one word that tells sources apart in the log and in the counter `tallystream.reporter.source.failed`.
    Reading must change nothing. It happens at each snapshot, from any thread, but never twice at once for a registry;
    and once in the child of a fork.
    """

    @property
    def kind(self) -> str:
        """The library's name, such as prometheus."""

    def read(self) -> Iterable[Reading]:
        """Return the metrics as they are now; what it raises ends this reading, what came before it is reported."""


def to_integer(value: float) -> int:
    """Return a count as the record has it: a fraction is cut off. What is no number becomes -1, which is refused."""
    return floor(value) if isfinite(value) else -1
