"""DDSketch: quantiles that merge, with a relative error of 1 % and a bounded size. Pure: no clock, no lock, no Kafka.

Source: Masson, Rim, Lee, "DDSketch: A fast and fully-mergeable quantile sketch with relative-error guarantees",
VLDB 2019. A value x > 0 is counted in the bin ceil(log(x) / log(GAMMA)), GAMMA = 1.01 / 0.99, and stands for
2 * GAMMA**bin / (GAMMA + 1); negative values have bins of their own, zeros a count. Of each sign the MAX_BINS bins
nearest to the largest magnitude are kept, which span more than 17 powers of ten; what lies below is counted in the
lowest of them. So a sketch depends on its values alone, not on the order in which they came or sketches were merged.

Encoded: base64 of the byte 1 (the version), the count of zeros, then for the positive and for the negative bins their
number and, in rising order, each bin's distance from the one before (the first: from 0, zigzag) and its count; all
numbers as LEB128.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from math import ceil, exp, log
from operator import sub
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

RELATIVE_ERROR = 0.01
GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
MAX_BINS = 2048
"""Bins of each sign."""

_VERSION = 1
_LOG_GAMMA = log(GAMMA)
_BINS_PER_E = 1 / _LOG_GAMMA
_MIDDLE = log(2 / (GAMMA + 1))
_LARGEST_LOG = 709.78
_MAX_INDEX = 1 << 16  # beyond every float: log(5e-324) and log(1.8e308) are 37225 and 35489 bins away from 0
_MAX_COUNT = (1 << 63) - 1

Bins = dict[int, int]


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
        positive, per_e = self.positive, _BINS_PER_E
        for value in values:
            if value > 0:
                index = ceil(log(value) * per_e)
                positive[index] = positive.get(index, 0) + 1
            elif value:
                index = ceil(log(-value) * per_e)
                self.negative[index] = self.negative.get(index, 0) + 1
            else:
                self.zeros += 1
        _collapse(positive)
        _collapse(self.negative)

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
        self.zeros -= earlier.zeros
        if self.zeros < 0:
            raise ValueError("a sketch can't be taken from one that does not contain it")
        _subtract(self.positive, earlier.positive)
        _subtract(self.negative, earlier.negative)

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
        bins = self._ascending()
        value, passed = next(bins)
        found = []
        for share in shares:
            rank = int(share * (count - 1))
            while passed <= rank:
                value, size = next(bins)
                passed += size
            found.append(value)
        return found

    def _ascending(self) -> Iterator[tuple[float, int]]:
        for index in sorted(self.negative, reverse=True):
            yield -_value(index), self.negative[index]
        if self.zeros:
            yield 0.0, self.zeros
        for index in sorted(self.positive):
            yield _value(index), self.positive[index]

    def encode(self) -> str:
        """Return it as base64."""
        out = bytearray([_VERSION])
        _put(out, self.zeros)
        for bins in (self.positive, self.negative):
            _put(out, len(bins))
            indices = sorted(bins)
            if not indices:
                continue
            _put(out, _zigzag(indices[0]))
            steps = [0, *map(sub, indices[1:], indices)]
            counts = [bins[index] for index in indices]
            _put(out, counts[0])
            if max(steps) < 128 and max(counts) < 128:  # a byte each: in one go
                pairs = bytearray(2 * len(indices))
                pairs[::2], pairs[1::2] = bytes(steps), bytes(counts)
                out += pairs[2:]
            else:
                for step, count in zip(steps[1:], counts[1:], strict=True):
                    _put(out, step)
                    if count < 128:
                        out.append(count)
                    else:
                        _put(out, count)
        return b64encode(out).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the sketch in `text`.

        Raises:
            ValueError: it is not one, or has more or other bins than a sketch can have.
        """
        data = b64decode(text, validate=True)
        if not data or data[0] != _VERSION:
            raise ValueError(f"not a sketch of version {_VERSION}")
        numbers = _numbers(data[1:])
        try:
            zeros = next(numbers)
            positive, negative = _bins(numbers), _bins(numbers)
        except StopIteration:
            raise ValueError("the sketch is cut off") from None
        if next(numbers, None) is not None:
            raise ValueError("the sketch has bytes after its end")
        return cls(positive, negative, zeros)


def _value(index: int) -> float:
    return exp(min(index * _LOG_GAMMA + _MIDDLE, _LARGEST_LOG))


def _collapse(bins: Bins) -> None:
    if len(bins) > MAX_BINS or (bins and max(bins) - min(bins) >= MAX_BINS):
        floor = max(bins) - MAX_BINS + 1
        low = [index for index in bins if index < floor]
        if low:
            bins[floor] = bins.get(floor, 0) + sum(bins.pop(index) for index in low)


def _merge(bins: Bins, others: Bins) -> None:
    for index, count in others.items():
        bins[index] = bins.get(index, 0) + count
    _collapse(bins)


def _subtract(bins: Bins, earlier: Bins) -> None:
    floor = max(bins, default=0) - MAX_BINS + 1
    for index, count in earlier.items():
        at = max(index, floor)
        left = bins.get(at, 0) - count
        if left < 0:
            raise ValueError("a sketch can't be taken from one that does not contain it")
        bins[at] = left
    for index in [index for index, count in bins.items() if not count]:
        del bins[index]


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _put(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if number > _MAX_COUNT:
                raise ValueError("a number in the sketch leaves 64 bits")
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("a number in the sketch leaves 64 bits")
    if shift:
        raise ValueError("the sketch is cut off")


def _bins(numbers: Iterator[int]) -> Bins:
    size = next(numbers)
    if size > MAX_BINS:
        raise ValueError(f"the sketch has {size} bins of a sign, {MAX_BINS} at most are taken")
    bins: Bins = {}
    index = 0
    for position in range(size):
        step = next(numbers)
        if position:
            index += step
        else:
            index = step >> 1 if not step & 1 else -(step + 1 >> 1)
        count = next(numbers)
        if not count or abs(index) > _MAX_INDEX or index in bins:
            raise ValueError("a bin of the sketch is empty, double or out of range")
        bins[index] = count
    if bins and max(bins) - min(bins) >= MAX_BINS:
        raise ValueError("the bins of the sketch lie too far apart")
    return bins
