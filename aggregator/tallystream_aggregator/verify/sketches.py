"""Sketches as in docs/sketches.md: their buckets as plain dicts, merging, quantiles."""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.record import Buckets, Sketch

Bins = dict[tuple[int, int, int], int]
"""(sign, scale, index of the bucket) → number of values. (0, 0, 0) counts the zeros."""

MAX_BUCKETS = 4096
SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Bytes of a count → its format in `struct`."""


def number_of(sketch: Sketch) -> int:
    """Return how many values a sketch has.

    Raises:
        ValueError: its buckets do not rise, are too many, or are those of no float.
    """
    number = sketch.zero_count
    for runs in filter(None, (sketch.positive, sketch.negative)):
        first = after = runs[0].offset
        for run in runs:
            counts = _counts(run)
            if run.offset < after:
                raise ValueError("no rising buckets")
            after = run.offset + len(counts)
            number += sum(counts)
        if after - first > MAX_BUCKETS:
            raise ValueError("too many buckets")
        ends = first / 2.0**sketch.scale, after / 2.0**sketch.scale
        # Rounded outwards if a bucket is wider than the smallest number's power of two.
        if ends[0] < -1075 - (2.0**-sketch.scale if sketch.scale < 0 else 0) or ends[1] > 1024:
            raise ValueError("beyond the numbers that there are")
    return number


def bins_of(sketch: Sketch) -> Bins:
    """Return the buckets of a sketch that have values."""
    bins = {(0, 0, 0): sketch.zero_count} if sketch.zero_count else {}
    for sign, runs in ((1, sketch.positive), (-1, sketch.negative)):
        for run in runs:
            bins |= {(sign, sketch.scale, at): n for at, n in enumerate(_counts(run), run.offset) if n}
    return bins


def _counts(run: Buckets) -> Sequence[int]:
    if run.width == 1:
        return run.counts
    number, rest = divmod(len(run.counts), run.width)
    if rest:
        raise ValueError("no whole numbers of this width")
    return struct.unpack(f"<{number}{_FORMATS[run.width]}", run.counts)


def value_of(sign: int, scale: int, index: int) -> float:
    """Return the value of a bucket, whose relative distance from both ends of the bucket is the same."""
    power: float = 2.0**-scale
    low: float = 2.0 ** (index * power)
    return sign * low * (2 / (1 + math.exp2(-power)))


def merged(bins: Bins) -> Bins:
    """Return the buckets at the smallest scale, or at the next lower one at which no sign has too many buckets."""
    scale = min((scale for sign, scale, _ in bins if sign), default=0)
    while True:
        same: Counter[tuple[int, int, int]] = Counter()
        for (sign, finer, index), number in bins.items():
            same[(sign, scale, index // 2 ** (finer - scale)) if sign else (0, 0, 0)] += number
        spans = [[index for each, _, index in same if each == sign] for sign in (1, -1)]
        if all(not span or max(span) - min(span) < MAX_BUCKETS for span in spans):
            return same
        scale -= 1


def quantiles(bins: Bins) -> dict[str, float]:
    """Return every quantile: the bucket of the value with rank floor(share * (count - 1)) in ascending order.

    All buckets have the same scale. The rank is computed in double precision, as docs/table.md says: above 2**53
    values it is rounded.
    """
    rising = sorted(bins, key=lambda key: (key[0], key[0] * key[2]))
    below = list(accumulate(bins[key] for key in rising))
    ranks = {name: int(share * (below[-1] - 1)) for name, share in SHARES.items()}
    return {name: value_of(*rising[bisect_right(below, rank)]) for name, rank in ranks.items()}
