"""The merged sketch of all lives, and its quantiles (rule 7).

Sketches are added and subtracted as arrays. So an update costs about as much for a thousand buckets as for one, and
takes only memory for ranges of buckets that have values.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tallystream import record
from tallystream.metrics.sketch import MAX_BUCKETS, middle, require_valid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}

Counted = tuple[float | None, record.Sketch | None]
"""The count of a life, and its sketch if it has one. A life without the metric has counted 0."""

_TYPES = {width: np.dtype(f"<u{width}") for width in (1, 2, 4, 8)}
_PAGE_BITS = 5
_PAGE = 1 << _PAGE_BITS
_GAP = 64
"""Empty buckets from which on a merged sketch leaves them out."""


def checked_sketch(metric: record.Histogram) -> record.Sketch | None:
    """Return the metric's sketch, or None if it has none.

    Raises:
        ValueError: the sketch can't be read, or its number of values is not the metric's count.
    """
    sketch = metric.sketch
    if sketch is None:
        return None
    try:
        require_valid(sketch)
    except ValueError as error:
        raise ValueError(f"the sketch can't be read: {error}") from error
    values = sketch.zero_count + sum(map(_values, sketch.positive)) + sum(map(_values, sketch.negative))
    if values != metric.count:
        raise ValueError(f"the sketch has {values} values and the count is {metric.count}")
    return sketch


def _values(run: record.Buckets) -> int:
    counts = np.frombuffer(run.counts, _TYPES[run.width])
    return int(counts.sum()) if run.width < 8 else sum(counts.tolist())  # 8 bytes may exceed the array's integers


class NotEmpty(NamedTuple):
    """The buckets that have values: their indexes, rising, and their counts, at most 2**63 - 1 in all."""

    indexes: NDArray[np.int64]
    counts: NDArray[np.uint64]

    def runs(self) -> tuple[record.Buckets, ...]:
        """Return them as in a record."""
        if not len(self.indexes):
            return ()
        ends = [0, *(np.flatnonzero(np.diff(self.indexes) > _GAP) + 1).tolist(), len(self.indexes)]
        return tuple(_run(self.indexes[at:end], self.counts[at:end]) for at, end in pairwise(ends))


_EMPTY = NotEmpty(np.zeros(0, np.int64), np.zeros(0, np.uint64))


def _run(indexes: NDArray[np.int64], counts: NDArray[np.uint64]) -> record.Buckets:
    first, width = int(indexes[0]), np.min_scalar_type(counts.max()).itemsize
    every = np.zeros(int(indexes[-1]) - first + 1, _TYPES[width])
    every[indexes - first] = counts
    return record.Buckets(offset=first, width=width, counts=every.tobytes())  # type: ignore[arg-type]  # 1, 2, 4 or 8


class Pages:
    """The counts of buckets, from which counts can be subtracted again.

    There is an array of 32 counts for each range of 32 buckets that has values. Counts are kept modulo 2**64: they are
    right again when what made them too large is subtracted.
    """

    __slots__ = ("_counts", "_pages")

    def __init__(self) -> None:
        self._pages: list[int] = []
        self._counts = np.zeros(0, np.uint64)

    def add(self, run: record.Buckets, *, subtract: bool = False) -> None:
        """Add the counts of consecutive buckets, or subtract them."""
        counts = np.frombuffer(run.counts, _TYPES[run.width])
        if not len(counts):
            return
        first, last = run.offset >> _PAGE_BITS, run.offset + len(counts) - 1 >> _PAGE_BITS
        place = bisect_left(self._pages, first)
        end = place + last - first
        if end >= len(self._pages) or self._pages[end] != last:  # some pages between the two are missing
            pages = sorted({*self._pages, *range(first, last + 1)})
            grown = np.zeros((len(pages), _PAGE), np.uint64)
            if self._pages:
                grown[np.searchsorted(pages, self._pages)] = self._counts.reshape(-1, _PAGE)
            self._pages, self._counts = pages, grown.ravel()
            place = bisect_left(pages, first)
        start = (place << _PAGE_BITS) + (run.offset & _PAGE - 1)
        changed = self._counts[start : start + len(counts)]
        (np.subtract if subtract else np.add)(changed, counts, out=changed)

    def not_empty(self) -> NotEmpty:
        """Return the buckets that have values. If there are fewer than pages, drop the pages without any."""
        places = np.flatnonzero(self._counts)
        if len(places) < len(self._pages):
            used = np.unique(places >> _PAGE_BITS)
            self._pages = [self._pages[place] for place in used.tolist()]
            self._counts = self._counts.reshape(-1, _PAGE)[used].ravel()
            places = np.flatnonzero(self._counts)
        pages = np.array(self._pages, np.int64)
        return NotEmpty((pages[places >> _PAGE_BITS] << _PAGE_BITS) + (places & _PAGE - 1), self._counts[places])


class Total(NamedTuple):
    """The sketch of all counted values, at most 2**63 - 1. It has at least one."""

    scale: int
    zeros: int
    positive: NotEmpty
    negative: NotEmpty

    def sketch(self) -> record.Sketch:
        """Return it as in a record."""
        sides = {"positive": self.positive.runs(), "negative": self.negative.runs()}
        return record.Sketch(scale=self.scale, zero_count=self.zeros, **sides)

    def quantiles(self) -> dict[str, float]:
        """Return p50 to p999. Each is that of the bucket of the value with the rank floor(share * (count - 1)).

        The relative error is at most 1.1 % if the scale is 5 or more.
        """
        zeros = np.array([self.zeros], np.uint64)
        passed = np.concatenate((self.negative.counts[::-1], zeros, self.positive.counts)).cumsum()
        ranks = np.array([int(share * (int(passed[-1]) - 1)) for share in SHARES.values()], np.uint64)
        places = passed.searchsorted(ranks, side="right") - len(self.negative.counts)
        return dict(zip(SHARES, map(self._value, places.tolist()), strict=True))

    def _value(self, place: int) -> float:
        """Return the value of a bucket, by its distance from the zeros in rising order."""
        if place > 0:
            return middle(self.scale, int(self.positive.indexes[place - 1]))
        return -middle(self.scale, int(self.negative.indexes[-1 - place])) if place < 0 else 0.0


class MergedSketch:
    """The merged sketches of many lives, each of which can be removed again.

    Buckets of different scales are kept apart until the sketch of all is computed. So when the only sketch of the
    smallest scale is removed, the accuracy of the others returns. `missing` is the number of lives without a sketch
    that have counted values.
    """

    __slots__ = ("missing", "sides", "zeros")

    def __init__(self) -> None:
        self.sides: dict[tuple[int, int], Pages] = {}  # by scale and sign
        self.zeros = 0
        self.missing = 0

    def replace(self, old: Counted, new: Counted) -> None:
        """Remove a sketch that was added, and add another one."""
        (old_count, old_sketch), (new_count, new_sketch) = old, new
        self.missing += (new_sketch is None and bool(new_count)) - (old_sketch is None and bool(old_count))
        if old_sketch == new_sketch:
            return
        if old_sketch is not None:
            self._add(old_sketch, subtract=True)
        if new_sketch is not None:
            self._add(new_sketch)

    def merge(self, other: MergedSketch, *, subtract: bool = False) -> None:
        """Add all sketches of another one, or remove those of one that was merged into this one."""
        sign = -1 if subtract else 1
        self.zeros += sign * other.zeros
        self.missing += sign * other.missing
        for side, found in other.not_empty().items():
            self.add(side, found.runs(), subtract=subtract)

    def _add(self, sketch: record.Sketch, *, subtract: bool = False) -> None:
        self.zeros += -sketch.zero_count if subtract else sketch.zero_count
        for sign, runs in ((1, sketch.positive), (-1, sketch.negative)):
            if runs:
                self.add((sketch.scale, sign), runs, subtract=subtract)

    def add(self, side: tuple[int, int], runs: Iterable[record.Buckets], *, subtract: bool = False) -> None:
        """Add buckets of a scale and a sign, or subtract them."""
        for run in runs:
            pages = self.sides.get(side)
            if pages is None:
                pages = self.sides[side] = Pages()
            pages.add(run, subtract=subtract)

    def not_empty(self) -> dict[tuple[int, int], NotEmpty]:
        """Return the buckets that have values, by scale and sign."""
        found = {side: pages.not_empty() for side, pages in self.sides.items()}
        self.sides = {side: pages for side, pages in self.sides.items() if len(found[side].counts)}
        return {side: found[side] for side in sorted(self.sides)}

    def total(self) -> Total | None:
        """Return the sketch of all counted values, or None if a sketch is missing or nothing was counted.

        It depends only on the sketches that were added, not on their order. Its scale is the smallest of them, or less
        if a sign would have more than `MAX_BUCKETS` buckets.
        """
        found = {} if self.missing else self.not_empty()
        if self.missing or not (self.zeros or found):
            return None
        scale = min((scale for scale, _ in found), default=0)
        while any(_width(found, sign, scale) > MAX_BUCKETS for sign in (1, -1)):
            scale -= 1
        return Total(scale, self.zeros, _at_scale(found, 1, scale), _at_scale(found, -1, scale))


def _width(found: dict[tuple[int, int], NotEmpty], sign: int, scale: int) -> int:
    """Return the number of buckets of a sign at `scale`, from the lowest to the highest one."""
    ends = [int(part.indexes[at]) >> of - scale for (of, each), part in found.items() if each == sign for at in (0, -1)]
    return max(ends) - min(ends) + 1 if ends else 0


def _at_scale(found: dict[tuple[int, int], NotEmpty], sign: int, scale: int) -> NotEmpty:
    """Return the buckets of a sign at `scale`."""
    parts = [(of - scale, part) for (of, each), part in found.items() if each == sign]
    if not parts:
        return _EMPTY
    if len(parts) == 1 and parts[0][0] == 0:  # the usual case
        return parts[0][1]
    counts = np.concatenate([part.counts for _, part in parts])
    shifted = np.concatenate([part.indexes >> shift for shift, part in parts])
    indexes, places = np.unique(shifted, return_inverse=True)
    sums = np.zeros(len(indexes), np.uint64)
    np.add.at(sums, places, counts)
    return NotEmpty(indexes, sums)
