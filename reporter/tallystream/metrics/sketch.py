"""OpenTelemetry's exponential histogram: mergeable quantiles with a known relative error. Not thread-safe.

Source: OpenTelemetry, "Metrics Data Model: ExponentialHistogram". With base = 2 ** (2 ** -scale), the bucket `index`
counts the values in (base ** index, base ** (index + 1)]. It represents the value that has the same relative distance
to both ends: (base - 1) / (base + 1), which is 0.54 % at scale 6. Negative values have separate buckets by their
magnitude. Zeros have a count.

A sketch starts at scale 6. When one sign has more than MAX_BUCKETS buckets from its lowest value to its highest, the
scale decreases by one: each two adjacent buckets become one. So a sketch depends only on its values, not on the order
in which they were added or in which sketches were merged.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from math import ceil, exp2, log2
from typing import TYPE_CHECKING, Self

from tallystream import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SCALE = 6
MAX_BUCKETS = 4096
"""The maximum number of buckets of one sign, including empty ones: 64 powers of two, or 19 of ten, at scale 6."""

_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -1075, 1024
"""Every float except 0 is in (2**-1075, 2**1024)."""

_LONG_RUN = re.compile(rb"\0{8,}")
"""Runs of empty buckets that are encoded as one number."""


class Buckets:
    """The counts of consecutive buckets: `counts[i]` belongs to the bucket `offset + i`."""

    __slots__ = ("counts", "offset")

    def __init__(self, offset: int = 0, counts: list[int] | None = None) -> None:
        self.offset = offset
        self.counts = [] if counts is None else counts

    def spread(self, other: Buckets) -> int:
        """Return the number of buckets from the lowest to the highest of both."""
        if not self.counts or not other.counts:
            return max(len(self.counts), len(other.counts))
        ends = self.offset + len(self.counts), other.offset + len(other.counts)
        return max(ends) - min(self.offset, other.offset)

    def increment(self, index: int) -> None:
        """Add one to the count of a bucket, which may be outside the current range."""
        at = index - self.offset
        if not self.counts:
            self.offset, self.counts = index, [1]
        elif at < 0:
            self.offset, self.counts = index, [1, *[0] * (-at - 1), *self.counts]
        elif at >= len(self.counts):
            self.counts += [*[0] * (at - len(self.counts)), 1]
        else:
            self.counts[at] += 1

    def add(self, other: Buckets, sign: int = 1) -> None:
        """Add the counts of `other`, or subtract them if `sign` is -1. Empty buckets at the ends are removed."""
        if other.counts:
            first, mine, theirs = aligned(self, other)
            self.offset = first
            self.counts = [count + sign * more for count, more in zip_longest(mine, theirs, fillvalue=0)]
            self.trim()

    def trim(self) -> None:
        """Remove the empty buckets at both ends."""
        counts = self.counts
        while counts and not counts[-1]:
            counts.pop()
        first = next((at for at, count in enumerate(counts) if count), 0)
        if first:
            self.offset += first
            del counts[:first]

    def halve(self) -> None:
        """Merge each two adjacent buckets into one: the scale decreases by one."""
        self.offset, self.counts = self.halved()

    def halved(self) -> tuple[int, list[int]]:
        """Return the offset and the counts after `halve()`."""
        counts = [0, *self.counts] if self.offset & 1 else self.counts
        return self.offset >> 1, [low + high for low, high in zip_longest(counts[::2], counts[1::2], fillvalue=0)]

    def copy(self) -> Buckets:
        """Return an independent copy."""
        return Buckets(self.offset, list(self.counts))


def aligned(one: Buckets, other: Buckets) -> tuple[int, list[int], list[int]]:
    """Return the lower offset, and the counts of both from there on. Neither is changed."""
    if not one.counts:
        return other.offset, [], other.counts
    if not other.counts:
        return one.offset, one.counts, []
    first = min(one.offset, other.offset)
    left, right = ([*[0] * (each.offset - first), *each.counts] for each in (one, other))
    return first, left, right


class Sketch:
    """A distribution of finite numbers."""

    __slots__ = ("_factor", "negative", "positive", "scale", "zeros")

    def __init__(self, scale: int = SCALE) -> None:
        self.positive, self.negative = Buckets(), Buckets()
        self.zeros = 0
        self.scale, self._factor = scale, 2.0**scale

    @property
    def count(self) -> int:
        """The number of values."""
        return self.zeros + sum(self.positive.counts) + sum(self.negative.counts)

    def add(self, values: Iterable[float]) -> None:
        """Add finite values."""
        for value in values:
            if value > 0:
                buckets, index = self.positive, ceil(log2(value) * self._factor) - 1
            elif value:
                buckets, index = self.negative, ceil(log2(-value) * self._factor) - 1
            else:
                self.zeros += 1
                continue
            at = index - buckets.offset
            if 0 <= at < len(buckets.counts):  # the usual case
                buckets.counts[at] += 1
                continue
            while buckets.spread(Buckets(index, [1])) > MAX_BUCKETS:
                self._halve()
                index >>= 1
            buckets.increment(index)

    def merge(self, other: Sketch) -> None:
        """Add all values of another sketch. The result has the lower scale of both, or less if the buckets need it."""
        theirs = other.copy()
        while theirs.scale > self.scale:
            theirs._halve()  # noqa: SLF001 - of the same class
        while (
            self.scale > theirs.scale
            or self.positive.spread(theirs.positive) > MAX_BUCKETS
            or self.negative.spread(theirs.negative) > MAX_BUCKETS
        ):
            if self.scale == theirs.scale:
                theirs._halve()  # noqa: SLF001
            self._halve()
        self.zeros += theirs.zeros
        self.positive.add(theirs.positive)
        self.negative.add(theirs.negative)

    def subtract(self, earlier: Sketch) -> None:
        """Subtract the values of an earlier state of this sketch.

        Raises:
            ValueError: this sketch does not contain the other one.
        """
        before = earlier.copy()
        while before.scale > self.scale:
            before._halve()  # noqa: SLF001
        if not (
            before.scale == self.scale
            and before.zeros <= self.zeros
            and _contains(self.positive, before.positive)
            and _contains(self.negative, before.negative)
        ):
            raise ValueError("a sketch can't be taken from one that does not contain it")
        self.zeros -= before.zeros
        self.positive.add(before.positive, -1)
        self.negative.add(before.negative, -1)

    def copy(self) -> Sketch:
        """Return an independent copy."""
        copy = Sketch(self.scale)
        copy.zeros, copy.positive, copy.negative = self.zeros, self.positive.copy(), self.negative.copy()
        return copy

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return, for each share q in rising order, an estimate of the value with the rank floor(q * (count - 1)).

        At scale 6, the relative error is at most 0.54 %. It about doubles with each decrease of the scale.

        Raises:
            ValueError: the sketch is empty, or a share is not from 0 to 1.
        """
        if any(not 0 <= share <= 1 for share in shares):
            raise ValueError(f"shares go from 0 to 1, not {list(shares)}")
        if not self.count:
            raise ValueError("an empty sketch has no quantiles")
        return quantiles(self.scale, self._ascending(), self.count, shares)

    def pairs(self) -> Iterator[tuple[float, int]]:
        """Yield (value, count) of each bucket that is not empty, in rising order of the values."""
        for sign, index, count in self._ascending():
            if count:
                yield sign * _middle(self.scale, index), count

    def _ascending(self) -> Iterator[tuple[int, int, int]]:
        yield from (
            (-1, index, count) for index, count in reversed(list(enumerate(self.negative.counts, self.negative.offset)))
        )
        yield 0, 0, self.zeros
        yield from ((1, index, count) for index, count in enumerate(self.positive.counts, self.positive.offset))

    def encode(self) -> record.Sketch:
        """Return the sketch as a record struct."""
        return record.Sketch(
            scale=self.scale,
            zero_count=self.zeros,
            positive=_encoded(self.positive),
            negative=_encoded(self.negative),
        )

    @classmethod
    def decode(cls, sketch: record.Sketch) -> Self:
        """Return the sketch of a record.

        Raises:
            ValueError: it has too many buckets, or some are outside the range of floats.
        """
        decoded = cls(sketch.scale)
        decoded.zeros = sketch.zero_count
        size_of(sketch.positive, sketch.scale)
        size_of(sketch.negative, sketch.scale)
        decoded.positive, decoded.negative = (expanded(each).copy() for each in (sketch.positive, sketch.negative))
        decoded.positive.trim()
        decoded.negative.trim()
        return decoded

    def _halve(self) -> None:
        scale, positive, negative = self.scale - 1, self.positive, self.negative
        halved, others = positive.halved(), negative.halved()
        # All at once: a signal's handler that raises can interrupt a call, but not these lines.
        positive.offset, positive.counts = halved
        negative.offset, negative.counts = others
        self.scale, self._factor = scale, 2.0**scale


def _contains(buckets: Buckets, earlier: Buckets) -> bool:
    _, now, before = aligned(buckets, earlier)
    return all(count >= less for count, less in zip_longest(now, before, fillvalue=0))


def quantiles(
    scale: int, ascending: Iterable[tuple[int, int, int]], count: int, shares: Sequence[float]
) -> list[float]:
    """Return an estimate for each share, as `Sketch.quantiles` does, of `count` values, at least one.

    `ascending` has (sign, bucket, number of values) from the lowest value to the highest. Zeros have the sign 0.
    """
    buckets = iter(ascending)
    sign, index, passed = next(buckets)
    estimates = []
    for share in shares:
        rank = int(share * (count - 1))
        while passed <= rank:
            sign, index, more = next(buckets)
            passed += more
        estimates.append(sign * _middle(scale, index))
    return estimates


def _middle(scale: int, index: int) -> float:
    """Return the value that a bucket represents: 2 * low * high / (low + high), of its two ends."""
    width = 2.0**-scale  # the bucket's width, in powers of two
    return exp2(index * width) * (2 / (1 + exp2(-width)))


def _encoded(buckets: Buckets) -> record.Buckets | None:
    counts = buckets.counts
    if not counts:
        return None
    encoded: list[int] = []
    first = 0
    sample = counts[::8]  # counting the zeros of all buckets would take longer than everything else here
    if 2 * sample.count(0) > len(sample):  # otherwise the runs would save little
        for run in _LONG_RUN.finditer(bytes(map(bool, counts))):
            begin, end = run.span()
            encoded += counts[first:begin]
            encoded.append(begin - end)
            first = end
    return record.Buckets(offset=buckets.offset, counts=encoded + counts[first:])


def size(sketch: record.Sketch) -> int:
    """Return the number of values in the sketch of a record.

    Raises:
        ValueError: there are too many buckets, or some are outside the range of floats.
    """
    return sketch.zero_count + size_of(sketch.positive, sketch.scale) + size_of(sketch.negative, sketch.scale)


def size_of(buckets: record.Buckets | None, scale: int) -> int:
    """Return the number of values in the buckets of a record.

    Raises:
        ValueError: there are too many buckets, or some are outside the range of floats.
    """
    if buckets is None:
        return 0
    encoded = buckets.counts
    runs = [] if min(encoded, default=0) >= 0 else [count for count in encoded if count < 0]
    size = len(encoded) - len(runs) - sum(runs)
    if size > MAX_BUCKETS:
        raise ValueError(f"it has {size} buckets of one sign; the limit is {MAX_BUCKETS}")
    lowest, end = (
        exponent << scale if scale >= 0 else exponent >> -scale for exponent in (_LOWEST_EXPONENT, _HIGHEST_EXPONENT)
    )
    if not lowest <= buckets.offset <= buckets.offset + size <= end:
        raise ValueError(f"the buckets from {buckets.offset} on are outside the range of floats")
    return sum(encoded) - sum(runs)


def expanded(buckets: record.Buckets | None) -> Buckets:
    """Return the buckets of a record that `size_of` has validated, with the runs of empty buckets expanded."""
    if buckets is None:
        return Buckets()
    encoded = buckets.counts
    if min(encoded, default=0) >= 0:
        return Buckets(buckets.offset, encoded)
    counts: list[int] = []
    first = 0
    for at in [at for at, count in enumerate(encoded) if count < 0]:
        counts += encoded[first:at]
        counts += [0] * -encoded[at]
        first = at + 1
    return Buckets(buckets.offset, counts + encoded[first:])
