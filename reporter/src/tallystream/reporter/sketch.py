"""DDSketch: quantiles that merge, with a relative error of 1 % and a bounded size. Pure: no clock, no lock, no Kafka.

Source: Masson, Rim, Lee, "DDSketch: A fast and fully-mergeable quantile sketch with relative-error guarantees",
VLDB 2019. A value x > 0 is counted in the bin ceil(log(x) / log(GAMMA)), GAMMA = 1.01 / 0.99, and stands for
2 * GAMMA**bin / (GAMMA + 1); negative values have bins of their own, zeros a count. Of each sign the MAX_BINS bins
nearest to the largest magnitude are kept, which span more than 17 powers of ten; what lies below is counted in the
lowest of them. So a sketch depends on its values alone, not on the order in which they came or sketches were merged.

Its text, for the record, is `_sketch_text.py`'s.
"""

from __future__ import annotations

from math import ceil, exp, log, log2
from typing import TYPE_CHECKING, Self

from tallystream.reporter._bins import BINS_PER_2, GAMMA, MAX_BINS, RELATIVE_ERROR, Bins, collapse
from tallystream.reporter._growing_bins import GrowingBins
from tallystream.reporter._sketch_text import from_text, text_of, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["GAMMA", "MAX_BINS", "RELATIVE_ERROR", "Bins", "GrowingSketch", "Sketch"]

_LOG_GAMMA = log(GAMMA)
_MIDDLE = log(2 / (GAMMA + 1))
_LARGEST_LOG = 709.78


class Sketch:
    """A distribution of finite numbers. Not locked: its owner does that."""

    __slots__ = ("negative", "positive", "zeros")

    def __init__(self, positive: Bins | None = None, negative: Bins | None = None, zeros: int = 0) -> None:
        self.positive: Bins = {} if positive is None else positive
        self.negative: Bins = {} if negative is None else negative
        self.zeros = zeros

    @property
    def count(self) -> int:
        """How many values it stands for."""
        return self.zeros + sum(self.positive.values()) + sum(self.negative.values())

    def add(self, values: Iterable[float]) -> None:
        """Take finite values."""
        positive, negative = self.positive, self.negative
        for value in values:
            if value:
                bins, index = (positive if value > 0 else negative), ceil(log2(abs(value)) * BINS_PER_2)
                bins[index] = bins.get(index, 0) + 1
            else:
                self.zeros += 1
        collapse(positive)
        collapse(negative)

    def merge(self, other: Sketch) -> None:
        """Take everything that another sketch stands for."""
        self.zeros += other.zeros
        _merge(self.positive, other.positive)
        _merge(self.negative, other.negative)

    def subtract(self, earlier: Sketch) -> None:
        """Take away what an earlier state of this same sketch stood for.

        Raises:
            ValueError: the other is no earlier state of this one.
        """
        if self.zeros < earlier.zeros:
            raise ValueError("a sketch can't be taken from one that does not contain it")
        positive, negative = _less(self.positive, earlier.positive), _less(self.negative, earlier.negative)
        self.zeros, self.positive, self.negative = self.zeros - earlier.zeros, positive, negative

    def copy(self) -> Sketch:
        """Return an independent copy."""
        return Sketch(dict(self.positive), dict(self.negative), self.zeros)

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return, for each share q in rising order, a value within 1 % of the one with the rank floor(q * (count - 1)).

        Raises:
            ValueError: the sketch is empty, or a share is not from 0 to 1.
        """
        count = self.count
        if not count:
            raise ValueError("an empty sketch has no quantiles")
        if any(not 0 <= share <= 1 for share in shares):
            raise ValueError(f"shares go from 0 to 1, not {list(shares)}")
        bins = self.pairs()
        value, passed = next(bins)
        found = []
        for share in shares:
            rank = int(share * (count - 1))
            while passed <= rank:
                value, size = next(bins)
                passed += size
            found.append(value)
        return found

    def pairs(self) -> Iterator[tuple[float, int]]:
        """Yield what each bin stands for, in rising order, and how many values are in it."""
        for index in sorted(self.negative, reverse=True):
            yield -_value(index), self.negative[index]
        if self.zeros:
            yield 0.0, self.zeros
        for index in sorted(self.positive):
            yield _value(index), self.positive[index]

    def encode(self) -> str:
        """Return it as base64."""
        return to_text(self.zeros, self.positive, self.negative)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the sketch in `text`.

        Raises:
            ValueError: it is not one, or has more or other bins than a sketch can have.
        """
        zeros, positive, negative = from_text(text)
        return cls(positive, negative, zeros)


def _value(index: int) -> float:
    return exp(min(index * _LOG_GAMMA + _MIDDLE, _LARGEST_LOG))


def _merge(bins: Bins, others: Bins) -> None:
    for index, count in others.items():
        bins[index] = bins.get(index, 0) + count
    collapse(bins)


def _less(bins: Bins, earlier: Bins) -> Bins:
    floor = max(bins, default=0) - MAX_BINS + 1
    if earlier and min(earlier) < floor:  # they have been collapsed since
        low = sum(count for index, count in earlier.items() if index <= floor)
        earlier = {floor: low} | {index: count for index, count in earlier.items() if index > floor}
    before = earlier.get
    left = {index: rest for index, count in bins.items() if (rest := count - before(index, 0))}
    # What `earlier` has in other bins is missing in the sum.
    if min(left.values(), default=0) < 0 or sum(left.values()) != sum(bins.values()) - sum(earlier.values()):
        raise ValueError("a sketch can't be taken from one that does not contain it")
    return left


class GrowingSketch:
    """A sketch that values are only added to, and whose text is asked for again and again. Not locked."""

    __slots__ = ("_negative", "_positive", "_zeros")

    def __init__(self) -> None:
        self._zeros = 0
        self._positive, self._negative = GrowingBins(), GrowingBins()

    def add(self, values: Iterable[float]) -> None:
        """Take finite values."""
        others = self._positive.add(values)
        if others:
            negative = [-value for value in others if value]
            self._zeros += len(others) - len(negative)
            self._negative.add(negative)

    def copy(self) -> Sketch:
        """Return what it is now."""
        return Sketch(self._positive.bins(), self._negative.bins(), self._zeros)

    def encode(self) -> str:
        """Return it as base64."""
        return text_of(self._zeros, self._positive.encode(), self._negative.encode())
