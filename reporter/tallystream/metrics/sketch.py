"""OpenTelemetry's exponential histogram: mergeable quantiles with a known relative error. Not thread-safe.

Source: OpenTelemetry, "Metrics Data Model: ExponentialHistogram". With base = 2 ** (2 ** -scale), the bucket `index`
counts the values in (base ** index, base ** (index + 1)]. It represents the value that has the same relative distance
to both ends: (base - 1) / (base + 1), which is 1.1 % at scale 5. Negative values have separate buckets by their
magnitude. Zeros have a count.

A sketch starts at scale 5. When one sign has more than MAX_BUCKETS buckets from its lowest value to its highest, the
scale decreases by one: each two adjacent buckets become one. So a sketch depends only on its values, not on the order
in which they were added or in which sketches were merged.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, zip_longest
from math import ceil, exp2, log2
from typing import TYPE_CHECKING, Literal, Self

from tallystream import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SCALE = 5
MAX_BUCKETS = 4096
"""The maximum number of buckets of one sign, including empty ones: 128 powers of two, or 38 of ten, at scale 5."""

_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -1075, 1024
"""Every float except 0 is in (2**-1075, 2**1024)."""

_GAP = bytes(64)
"""The bytes of empty buckets from which on a record leaves them out: the next item of the list takes about as much."""

_CODES: dict[Literal[1, 2, 4, 8], Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The array's type of unsigned whole numbers, by their width in bytes."""

_WIDTHS: dict[str, Literal[1, 2, 4, 8]] = {code: width for width, code in _CODES.items()}


def packed(counts: Sequence[int]) -> array[int]:
    """Return counts as an array of the narrowest type that can have them.

    Raises:
        OverflowError: one needs more than 64 bits.
    """
    for code in ("B", "H", "I"):
        try:
            return array(code, counts)
        except OverflowError:
            continue
    return array("Q", counts)


class Buckets:
    """The counts of consecutive buckets: `counts[i]` belongs to the bucket `offset + i`."""

    __slots__ = ("counts", "offset")

    def __init__(self, offset: int = 0, counts: Sequence[int] = ()) -> None:
        self.offset = offset
        self.counts = packed(counts) if counts else array("B")

    def spread(self, other: Buckets) -> int:
        """Return the number of buckets from the lowest to the highest of both."""
        if not self.counts or not other.counts:
            return max(len(self.counts), len(other.counts))
        ends = self.offset + len(self.counts), other.offset + len(other.counts)
        return max(ends) - min(self.offset, other.offset)

    def increment(self, index: int) -> None:
        """Add one to the count of a bucket, which may be outside the current range."""
        at, counts = index - self.offset, self.counts
        if not counts:
            self.offset, self.counts = index, packed([1])
        elif at < 0:
            self.offset, self.counts = index, array(counts.typecode, [1, *[0] * (-at - 1)]) + counts
        elif at >= len(counts):
            self.counts = counts + array(counts.typecode, [*[0] * (at - len(counts)), 1])
        else:
            try:
                counts[at] += 1
            except OverflowError:  # a wider type has larger counts
                self.counts = array({"B": "H", "H": "I"}.get(counts.typecode, "Q"), counts)
                self.counts[at] += 1

    def add(self, other: Buckets, sign: int = 1) -> None:
        """Add the counts of `other`, or subtract them if `sign` is -1. Empty buckets at the ends are removed."""
        if other.counts:
            first, mine, theirs = aligned(self, other)
            self.offset = first
            self.counts = packed([count + sign * more for count, more in zip_longest(mine, theirs, fillvalue=0)])
            self.trim()

    def trim(self) -> None:
        """Remove the empty buckets at both ends."""
        counts = self.counts
        while counts and not counts[-1]:
            counts.pop()
        if counts and not counts[0]:
            first = next(at for at, count in enumerate(counts) if count)
            self.offset += first
            del counts[:first]

    def halved(self, times: int = 1) -> tuple[int, array[int]]:
        """Return the offset and the counts with each two adjacent buckets as one: the scale decreases by `times`."""
        first, last = self.offset >> times, self.offset + len(self.counts) - 1 >> times
        counts = [0] * (last - first + 1)
        for index, count in enumerate(self.counts, self.offset):
            counts[(index >> times) - first] += count
        return first, packed(counts)

    def copy(self) -> Buckets:
        """Return an independent copy."""
        copy = Buckets(self.offset)
        copy.counts = self.counts[:]
        return copy

    def encode(self) -> tuple[record.Buckets, ...]:
        """Return the buckets as those of a record."""
        if not self.counts:
            return ()
        return without_gaps(self.offset, _little_endian(self.counts).tobytes(), _WIDTHS[self.counts.typecode])

    @classmethod
    def decode(cls, encoded: Sequence[record.Buckets]) -> Self:
        """Return the buckets of a record that `require_valid` accepts."""
        if not encoded:
            return cls()
        decoded = cls(encoded[0].offset)
        if len(encoded) == 1 and encoded[0].width == 1:  # the usual case
            decoded.counts = array("B", encoded[0].counts)
        else:
            counts: list[int] = []
            for each in encoded:
                counts += [0] * (each.offset - encoded[0].offset - len(counts))
                counts += _little_endian(array(_CODES[each.width], each.counts))
            decoded.counts = packed(counts)
        decoded.trim()
        return decoded


def without_gaps(offset: int, data: bytes, width: Literal[1, 2, 4, 8]) -> tuple[record.Buckets, ...]:
    """Return counts from the bucket `offset` on as those of a record. The first and the last one are not empty."""
    runs, begin = [], 0
    while (gap := data.find(_GAP, begin * width)) >= 0:
        end = -(-gap // width)
        runs.append(record.Buckets(offset=offset + begin, width=width, counts=data[begin * width : end * width]))
        begin = (len(data) - len(data[gap:].lstrip(b"\0"))) // width
    runs.append(record.Buckets(offset=offset + begin, width=width, counts=data[begin * width :]))
    return tuple(runs)


def aligned(one: Buckets, other: Buckets) -> tuple[int, list[int], list[int]]:
    """Return the lower offset, and the counts of both from there on. Neither is changed."""
    first = min((each.offset for each in (one, other) if each.counts), default=0)
    left, right = ([0] * (each.offset - first) + each.counts.tolist() if each.counts else [] for each in (one, other))
    return first, left, right


def _little_endian(counts: array[int]) -> array[int]:
    """Return an array with the byte order of a record, or one of a record with that of this machine."""
    if sys.byteorder == "big":
        counts = counts[:]
        counts.byteswap()
    return counts


class Sketch:
    """A distribution of finite numbers."""

    __slots__ = ("_factor", "negative", "positive", "scale", "zeros")

    def __init__(
        self, scale: int = SCALE, zeros: int = 0, positive: Buckets | None = None, negative: Buckets | None = None
    ) -> None:
        self.positive, self.negative = positive or Buckets(), negative or Buckets()
        self.zeros = zeros
        self.scale, self._factor = scale, 2.0**scale

    @property
    def count(self) -> int:
        """The number of values."""
        return self.zeros + sum(self.positive.counts) + sum(self.negative.counts)

    def add(self, values: Iterable[float]) -> None:
        """Add finite values."""
        positive, factor = self.positive, self._factor
        counts, offset = positive.counts, positive.offset + 1
        for value in values:
            if value > 0 and 0 <= (at := ceil(log2(value) * factor) - offset) < len(counts):  # the usual case
                try:
                    counts[at] += 1
                except OverflowError:
                    positive.increment(at + positive.offset)
                    counts = positive.counts
            else:
                self._add(value)
                counts, offset, factor = positive.counts, positive.offset + 1, self._factor

    def _add(self, value: float) -> None:
        if not value:
            self.zeros += 1
            return
        buckets = self.positive if value > 0 else self.negative
        index = ceil(log2(abs(value)) * self._factor) - 1
        while buckets.spread(Buckets(index, [1])) > MAX_BUCKETS:
            self._halve()
            index >>= 1
        buckets.increment(index)

    def merge(self, other: Sketch, sign: int = 1) -> None:
        """Add all values of another sketch. The result has the lower scale of both, or less if the buckets need it.

        If `sign` is -1, subtract them: `other` must be an earlier state of this sketch.

        Raises:
            OverflowError: a count would be negative, or need more than 64 bits.
        """
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
        self.zeros += sign * theirs.zeros
        self.positive.add(theirs.positive, sign)
        self.negative.add(theirs.negative, sign)

    def copy(self) -> Sketch:
        """Return an independent copy."""
        return Sketch(self.scale, self.zeros, self.positive.copy(), self.negative.copy())

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return, for each share q in rising order, an estimate of the value with the rank floor(q * (count - 1)).

        At scale 5, the relative error is at most 1.1 %. It about doubles with each decrease of the scale.

        Raises:
            ValueError: the sketch is empty, or a share is not from 0 to 1.
        """
        if shares and not 0 <= min(shares) <= max(shares) <= 1:
            raise ValueError(f"shares go from 0 to 1, not {list(shares)}")
        passed = list(accumulate((*reversed(self.negative.counts), self.zeros, *self.positive.counts)))
        count, zeros_at = passed[-1], len(self.negative.counts)
        if not count:
            raise ValueError("an empty sketch has no quantiles")
        ranks = [int(share * (count - 1)) for share in shares]
        values = {rank: self._value(bisect_right(passed, rank) - zeros_at) for rank in set(ranks)}
        return [values[rank] for rank in ranks]

    def _value(self, place: int) -> float:
        """Return the value of a bucket, by its distance from the zeros in rising order."""
        if place > 0:
            return middle(self.scale, self.positive.offset + place - 1)
        return -middle(self.scale, self.negative.offset - place - 1) if place else 0.0

    def pairs(self) -> Iterator[tuple[float, int]]:
        """Yield (value, count) of each bucket that is not empty, in rising order of the values."""
        negative, positive = self.negative, self.positive
        for index, count in reversed(list(enumerate(negative.counts, negative.offset))):
            if count:
                yield -middle(self.scale, index), count
        if self.zeros:
            yield 0.0, self.zeros
        for index, count in enumerate(positive.counts, positive.offset):
            if count:
                yield middle(self.scale, index), count

    def encode(self) -> record.Sketch:
        """Return the sketch as a record struct."""
        positive, negative = self.positive.encode(), self.negative.encode()
        return record.Sketch(scale=self.scale, zero_count=self.zeros, positive=positive, negative=negative)

    @classmethod
    def decode(cls, sketch: record.Sketch) -> Self:
        """Return the sketch of a record.

        Raises:
            ValueError: `require_valid` refuses it.
        """
        require_valid(sketch)
        return cls(sketch.scale, sketch.zero_count, *map(Buckets.decode, (sketch.positive, sketch.negative)))

    def _halve(self) -> None:
        scale, positive, negative = self.scale - 1, self.positive, self.negative
        halved, others = positive.halved(), negative.halved()
        # All at once: a signal's handler that raises can interrupt a call, but not these lines.
        positive.offset, positive.counts = halved
        negative.offset, negative.counts = others
        self.scale, self._factor = scale, 2.0**scale


@lru_cache(maxsize=4096)
def middle(scale: int, index: int) -> float:
    """Return the value that a bucket represents: 2 * low * high / (low + high), of its two ends."""
    width = 2.0**-scale  # the bucket's width, in powers of two
    return exp2(index * width) * (2 / (1 + exp2(-width)))


def require_valid(sketch: record.Sketch) -> None:
    """Require that a sketch of a record can be read.

    Raises:
        ValueError: it has parts of counts, buckets that do not rise, too many of them, or some outside the range of
            floats.
    """
    for runs in (sketch.positive, sketch.negative):
        if not runs:
            continue
        first = end = runs[0].offset
        for run in runs:
            size, rest = divmod(len(run.counts), run.width)
            if rest:
                raise ValueError(f"the counts have {len(run.counts)} bytes, which are no numbers of {run.width}")
            if run.offset < end:
                raise ValueError(f"the buckets from {run.offset} on follow those up to {end}: they do not rise")
            end = run.offset + size
        if end - first > MAX_BUCKETS:
            raise ValueError(f"it has {end - first} buckets of one sign; the limit is {MAX_BUCKETS}")
        lowest, highest = RANGES[sketch.scale]
        if not lowest <= first <= end <= highest:
            raise ValueError(f"the buckets from {first} on are outside the range of floats")


RANGES = {
    scale: tuple(int(exponent * 2.0**scale // 1) for exponent in (_LOWEST_EXPONENT, _HIGHEST_EXPONENT))
    for scale in range(record.MIN_SCALE, record.MAX_SCALE + 1)
}
"""The index of the lowest bucket and that after the highest one, by scale."""
