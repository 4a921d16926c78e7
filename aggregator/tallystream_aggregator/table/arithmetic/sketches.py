"""The merged sketch of all lives, and its quantiles (rule 7).

The state has each sketch as compact JSON. A sketch is decoded when it is checked against the metric's count, and when
it is added to or removed from the sum of its metric. So the cost of a step depends on the lives that it changes.
"""

from __future__ import annotations

from itertools import compress, count
from operator import sub
from typing import TYPE_CHECKING

import msgspec

from tallystream import record
from tallystream.decoding import json_decoder
from tallystream.metrics.sketch import MAX_BUCKETS, Buckets, Sketch, aligned, expanded, size

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
_SHARES = list(SHARES.values())

Bins = dict[int, int]
"""The number of values in each bucket, by the bucket's index."""

Counted = tuple[float | None, bytes | None]
"""The count of a life, and its sketch if it has one. A life without the metric has counted 0."""

encode = msgspec.json.Encoder().encode
_decode = json_decoder(record.Sketch)
_EMPTY = encode(record.Sketch(scale=0))


def encode_sketch(metric: record.Histogram) -> bytes | None:
    """Return the metric's sketch as JSON, or None if it has none.

    Raises:
        ValueError: the sketch has too many buckets, or its number of values is not the metric's count.
    """
    sketch = metric.sketch
    if sketch is None:
        return None
    try:
        values = size(sketch)
    except ValueError as error:
        raise ValueError(f"the sketch can't be read: {error}") from error
    if values != metric.count:
        raise ValueError(f"the sketch has {values} values and the count is {metric.count}")
    return encode(sketch)


def quantiles(sketch: Sketch) -> dict[str, float]:
    """Return p50 to p999 of a sketch that is not empty.

    Each is within 0.54 % of the value with the rank floor(share * (count - 1)) if the scale is 6 or more.
    """
    return dict(zip(SHARES, sketch.quantiles(_SHARES), strict=True))


class MergedSketch:
    """The merged sketches of many lives, each of which can be removed again.

    Buckets of different scales are kept apart until the sketch of all is computed. So when the only sketch of the
    smallest scale is removed, the accuracy of the others returns. `missing` is the number of lives without a sketch
    that have counted values.
    """

    __slots__ = ("bins", "missing", "zeros")

    def __init__(self) -> None:
        self.bins: dict[tuple[int, int], Bins] = {}  # by scale and sign
        self.zeros = 0
        self.missing = 0

    def replace(self, old: Counted, new: Counted) -> None:
        """Remove a sketch that was added, and add another one."""
        (old_count, old_sketch), (new_count, new_sketch) = old, new
        self.missing += (new_sketch is None and bool(new_count)) - (old_sketch is None and bool(old_count))
        if old_sketch == new_sketch:
            return
        before, after = _decode(old_sketch or _EMPTY), _decode(new_sketch or _EMPTY)
        self.zeros += after.zero_count - before.zero_count
        for sign, less, more in ((1, before.positive, after.positive), (-1, before.negative, after.negative)):
            removed, added = expanded(less), expanded(more)
            if before.scale != after.scale or removed.spread(added) > 2 * MAX_BUCKETS:
                self._change(before.scale, sign, *aligned(Buckets(), removed))
                removed = Buckets()
            self._change(after.scale, sign, *aligned(added, removed))

    def merge(self, other: MergedSketch, sign: int = 1) -> None:
        """Add all sketches of another one. With the sign -1, remove those of one that was merged into this one."""
        self.zeros += sign * other.zeros
        self.missing += sign * other.missing
        for key, bins in other.bins.items():
            self._grow(key, ((index, sign * count) for index, count in bins.items()))

    def _change(self, scale: int, sign: int, first: int, more: list[int], less: list[int]) -> None:
        """Add the counts `more` of the buckets from `first` on, and subtract the counts `less`."""
        size = max(len(more), len(less))
        changes = list(map(sub, more + [0] * (size - len(more)), less + [0] * (size - len(less))))
        self._grow((scale, sign), compress(zip(count(first), changes, strict=False), changes))

    def _grow(self, key: tuple[int, int], changes: Iterable[tuple[int, int]]) -> None:
        bins = self.bins.setdefault(key, {})
        for index, change in changes:
            left = bins.get(index, 0) + change
            if left:
                bins[index] = left
            else:
                del bins[index]
        if not bins:
            del self.bins[key]

    def total(self) -> Sketch | None:
        """Return the sketch of all counted values, or None if a sketch is missing or nothing was counted.

        It depends only on the sketches that were added, not on their order. Its scale is the smallest of them, or less
        if a sign would have more than `MAX_BUCKETS` buckets.
        """
        if self.missing or not (self.zeros or self.bins):
            return None
        ends = [(scale, sign, min(bins), max(bins)) for (scale, sign), bins in self.bins.items()]
        scale = min((scale for scale, *_ in ends), default=0)
        while any(len(_range(ends, sign, scale)) > MAX_BUCKETS for sign in (1, -1)):
            scale -= 1
        merged = Sketch(scale)
        merged.zeros = self.zeros
        for sign, buckets in ((1, merged.positive), (-1, merged.negative)):
            indexes = _range(ends, sign, scale)
            buckets.offset, buckets.counts = indexes.start, [0] * len(indexes)
        for (finer, sign), bins in self.bins.items():
            buckets, shift = merged.positive if sign > 0 else merged.negative, finer - scale
            counts, first = buckets.counts, buckets.offset
            for index, number in bins.items():
                counts[(index >> shift) - first] += number
        return merged


def _range(ends: list[tuple[int, int, int, int]], sign: int, scale: int) -> range:
    """Return the indexes of all buckets of a sign at `scale`. `ends` has (scale, sign, lowest index, highest index)."""
    lowest = min((low >> finer - scale for finer, each, low, _ in ends if each == sign), default=0)
    highest = max((high >> finer - scale for finer, each, _, high in ends if each == sign), default=-1)
    return range(lowest, highest + 1)
