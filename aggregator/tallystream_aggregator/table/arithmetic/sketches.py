"""The merged sketch of all lives, and its quantiles (rule 7).

Sketches are added and subtracted as arrays. So an update costs about as much for a thousand buckets as for one, and
takes only memory for ranges of buckets that have values.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallystream import record
from tallystream.metrics.sketch import MAX_BUCKETS, Buckets, Sketch, middle, require_valid, without_gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Counted = tuple["Sequence[Any]", "Sequence[record.Sketch | None]"]
"""The counts of lives, None for a life without the metric, and their sketches, None for a life without one."""

TYPES_BY_WIDTH = {width: np.dtype(f"<u{width}") for width in (1, 2, 4, 8)}
_WIDEST = 8
"""The sum of counts of this width may exceed the integers of an array."""

_PAGE_BITS = 5
_PAGE = 1 << _PAGE_BITS
_FEW = 256
"""Up to so many buckets, a sketch is read faster without arrays."""

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
    if run.width == 1 and len(run.counts) <= _FEW:
        return sum(run.counts)
    counts = np.frombuffer(run.counts, TYPES_BY_WIDTH[run.width])
    return int(counts.sum()) if run.width < _WIDEST else sum(counts.tolist())


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


def _of_runs(runs: Sequence[record.Buckets]) -> NotEmpty:
    """Return the buckets of a sketch that have values."""
    found = [_EMPTY]
    for run in runs:
        counts = np.frombuffer(run.counts, TYPES_BY_WIDTH[run.width]).astype(np.uint64)
        places = np.flatnonzero(counts)
        found.append(NotEmpty(places + run.offset, counts[places]))
    return NotEmpty._make(map(np.concatenate, zip(*found, strict=True)))


def _buckets(runs: Sequence[record.Buckets]) -> int:
    """Return the number of buckets of a sketch from the first to the last one."""
    return runs[-1].offset + len(runs[-1].counts) // runs[-1].width - runs[0].offset if runs else 0


class Total(NamedTuple):
    """A sketch, of which only the buckets with values are kept."""

    scale: int
    zeros: int
    positive: NotEmpty
    negative: NotEmpty

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return, for each share, an estimate of the value with the rank floor(share * (count - 1))."""
        (below, negative), (above, positive) = self.negative, self.positive
        passed = np.concatenate([negative[::-1], np.array([self.zeros], np.uint64), positive]).cumsum()
        ranks = np.array([int(share * (int(passed[-1]) - 1)) for share in shares], np.uint64)
        places = passed.searchsorted(ranks, side="right") - len(below)
        return [self._value(place, above, below) for place in places.tolist()]

    def _value(self, place: int, above: NDArray[np.int64], below: NDArray[np.int64]) -> float:
        """Return the value of a bucket, by its distance from the zeros in rising order."""
        if place > 0:
            return middle(self.scale, int(above[place - 1]))
        return -middle(self.scale, int(below[-place - 1])) if place else 0.0

    def encode(self) -> record.Sketch:
        """Return it as `Sketch.encode` does."""
        positive, negative = (_without_gaps(side) for side in (self.positive, self.negative))
        return record.Sketch(scale=self.scale, zero_count=self.zeros, positive=positive, negative=negative)


def _without_gaps(side: NotEmpty) -> tuple[record.Buckets, ...]:
    if not len(side.indexes):
        return ()
    run = _run(*side)
    return without_gaps(run.offset, run.counts, run.width)


def _run(indexes: NDArray[np.int64], counts: NDArray[np.uint64]) -> record.Buckets:
    first, largest = int(indexes[0]), int(counts.max())
    width = next(width for width in TYPES_BY_WIDTH if not largest >> 8 * width)
    every = np.zeros(int(indexes[-1]) - first + 1, TYPES_BY_WIDTH[width])
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

    def add(self, offset: int, counts: NDArray[np.unsignedinteger[Any]], *, subtract: bool = False) -> None:
        """Add the counts of consecutive buckets, or subtract them. `offset` is the index of the first one."""
        if not len(counts):
            return
        first, last = offset >> _PAGE_BITS, offset + len(counts) - 1 >> _PAGE_BITS
        place = bisect_left(self._pages, first)
        end = place + last - first
        if end >= len(self._pages) or self._pages[end] != last:  # some pages between the two are missing
            pages = sorted({*self._pages, *range(first, last + 1)})
            grown = np.zeros((len(pages), _PAGE), np.uint64)
            if self._pages:
                grown[np.searchsorted(pages, self._pages)] = self._counts.reshape(-1, _PAGE)
            self._pages, self._counts = pages, grown.ravel()
            place = bisect_left(pages, first)
        start = (place << _PAGE_BITS) + (offset & _PAGE - 1)
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


class MergedSketch:
    """The merged sketches of many lives, each of which can be removed again.

    The only sketch of a metric is kept as it is: `only`. Otherwise the buckets of different scales are kept apart until
    the sketch of all is computed. So when the only sketch of the smallest scale is removed, the accuracy of the others
    returns. `missing` is the number of lives without a sketch that have counted values.
    """

    __slots__ = ("missing", "only", "sides", "zeros")

    def __init__(self) -> None:
        self.only: record.Sketch | None = None
        self.sides: dict[tuple[int, int], Pages] = {}  # by scale and sign
        self.zeros = 0
        self.missing = 0

    def replace(self, old: Counted, new: Counted) -> None:
        """Remove sketches that were added, and add others."""
        removed, added = self._sketches(*old, -1), self._sketches(*new, 1)
        if removed == [self.only]:
            self.only, removed = None, []
        if len(added) == 1 and not (removed or self.only or self.sides or self.zeros):
            (self.only,) = added
            return
        self._add_sketches(removed, -1)
        self._add_sketches(added, 1)

    def merge(self, other: MergedSketch, *, subtract: bool = False) -> None:
        """Add all sketches of another one, or remove those of one that was merged into this one."""
        sign = -1 if subtract else 1
        found = other.not_empty()
        self._add_sketches([], sign)
        self.zeros += sign * other.zeros
        self.missing += sign * other.missing
        for side, part in found.items():
            self.add(side, part.runs(), subtract=subtract)

    def _sketches(
        self, counts: Sequence[Any], sketches: Sequence[record.Sketch | None], sign: int
    ) -> list[record.Sketch]:
        """Return the sketches of lives, and count the lives without one that have counted values."""
        found = [sketch for sketch in sketches if sketch is not None]
        if len(found) < len(sketches):
            lacking = [count for count, sketch in zip(counts, sketches, strict=True) if count and sketch is None]
            self.missing += sign * len(lacking)
        return found

    def _add_sketches(self, found: Sequence[record.Sketch], sign: int) -> None:
        """Add sketches to the buckets, or with the sign -1 remove them."""
        only, self.only = self.only, None
        if only is not None:
            self._add_sketches([only], 1)
        self.zeros += sign * sum([sketch.zero_count for sketch in found])
        for scale in {sketch.scale for sketch in found}:
            some = [sketch for sketch in found if sketch.scale == scale]
            self.add((scale, 1), [run for sketch in some for run in sketch.positive], subtract=sign < 0)
            self.add((scale, -1), [run for sketch in some for run in sketch.negative], subtract=sign < 0)

    def add(self, side: tuple[int, int], runs: Sequence[record.Buckets], *, subtract: bool = False) -> None:
        """Add buckets of a scale and a sign, or subtract them."""
        for run in runs:
            counts = np.frombuffer(run.counts, TYPES_BY_WIDTH[run.width])
            self.sides.setdefault(side, Pages()).add(run.offset, counts, subtract=subtract)

    def add_totals(self, scale: int, offset: int, counts: NDArray[np.uint64]) -> None:
        """Add the total counts of consecutive positive buckets of several sketches, modulo 2**64."""
        self._add_sketches([], 1)
        self.sides.setdefault((scale, 1), Pages()).add(offset, counts)

    def not_empty(self) -> dict[tuple[int, int], NotEmpty]:
        """Return the buckets that have values, by scale and sign."""
        self._add_sketches([], 1)
        found = {side: pages.not_empty() for side, pages in self.sides.items()}
        self.sides = {side: pages for side, pages in self.sides.items() if len(found[side].counts)}
        return {side: found[side] for side in sorted(self.sides)}

    def total(self) -> Total | Sketch | None:
        """Return the sketch of all counted values, or None if a sketch is missing or nothing was counted.

        It depends only on the sketches that were added, not on their order. Its scale is the smallest of them, or less
        if a sign would have more than `MAX_BUCKETS` buckets; it is 0 if all values are. Its count is at most 2**63 - 1.
        """
        if self.missing:
            return None
        if self.only is None:
            found, zeros = self.not_empty(), self.zeros
        else:
            of, zeros = self.only, self.only.zero_count
            if _buckets(of.positive) + _buckets(of.negative) <= _FEW:
                sketch = Sketch(of.scale, zeros, *map(Buckets.decode, (of.positive, of.negative)))
                if sketch.positive.counts or sketch.negative.counts:
                    return sketch
            sides = {(of.scale, 1): _of_runs(of.positive), (of.scale, -1): _of_runs(of.negative)}
            found = {side: part for side, part in sides.items() if len(part.counts)}
        scale = min((scale for scale, _ in found), default=0)
        while any(_width(found, sign, scale) > MAX_BUCKETS for sign in (1, -1)):
            scale -= 1
        parts = _at_scale(found, 1, scale), _at_scale(found, -1, scale)
        return Total(scale, zeros, *parts) if found or zeros else None


def _width(found: dict[tuple[int, int], NotEmpty], sign: int, scale: int) -> int:
    """Return the number of buckets of a sign at `scale`, from the lowest to the highest one."""
    ends = [int(part.indexes[at]) >> of - scale for (of, each), part in found.items() if each == sign for at in (0, -1)]
    return max(ends) - min(ends) + 1 if ends else 0


def _at_scale(found: dict[tuple[int, int], NotEmpty], sign: int, scale: int) -> NotEmpty:
    """Return the buckets of a sign at `scale`."""
    parts = [(of, part) for (of, each), part in found.items() if each == sign]
    if not parts:
        return _EMPTY
    if [of for of, _ in parts] == [scale]:
        return parts[0][1]
    all_indexes = np.concatenate([part.indexes >> of - scale for of, part in parts])
    indexes, places = np.unique(all_indexes, return_inverse=True)
    counts = np.zeros(len(indexes), np.uint64)
    np.add.at(counts, places, np.concatenate([part.counts for _, part in parts]))
    return NotEmpty(indexes, counts)
