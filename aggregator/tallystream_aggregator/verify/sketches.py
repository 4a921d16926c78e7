"""Sketches as in docs/record.md, as plain dicts of buckets: decoding, merging, quantiles."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

Bins = dict[tuple[int, int, int], int]
"""(sign, scale, index of the bucket) → number of values. (0, 0, 0) counts the zeros."""

MAX_BUCKETS = 4096
MAX_INT64 = 2**63 - 1
SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Bytes of a count → its format in `struct`."""


def decode(content: object) -> Bins:
    """Return the buckets of a sketch.

    Raises:
        ValueError: it is not a sketch.
    """
    if not isinstance(content, dict):
        raise ValueError("no object")  # noqa: TRY004 - one error for everything that is not a sketch
    scale = _bounded_int(content.get("scale"), -10, 20)
    zeros = _bounded_int(content.get("zero_count", 0), 0, MAX_INT64)
    bins = {(0, 0, 0): zeros} if zeros else {}
    return bins | _one_sign(1, scale, content.get("positive", [])) | _one_sign(-1, scale, content.get("negative", []))


def _one_sign(sign: int, scale: int, content: Any) -> Bins:
    if not isinstance(content, list):
        raise ValueError("no list of buckets")  # noqa: TRY004
    bins: Bins = {}
    first = after = None
    for run in content:
        index, counts = _run(run)
        if first is None or after is None:
            first = after = index
        if index < after:
            raise ValueError("no rising buckets")
        bins |= {(sign, scale, at): count for at, count in enumerate(counts, index) if count}
        after = index + len(counts)
    if first is None or after is None:
        return {}
    if after - first > MAX_BUCKETS:
        raise ValueError("too many buckets")
    ends = first / 2.0**scale, after / 2.0**scale
    # Rounded outwards if a bucket is wider than the smallest number's power of two.
    if ends[0] < -1075 - (2.0**-scale if scale < 0 else 0) or ends[1] > 1024:
        raise ValueError("beyond the numbers that there are")
    return bins


def _run(content: Any) -> tuple[int, tuple[int, ...]]:
    """Return the first index of consecutive buckets, and their counts."""
    if not isinstance(content, dict) or not isinstance(content.get("counts"), str):
        raise ValueError("no buckets")  # noqa: TRY004
    width = _bounded_int(content.get("width", 1), 1, 8)
    counts = base64.b64decode(content["counts"], validate=True)
    if width not in _FORMATS or len(counts) % width:
        raise ValueError("no whole numbers of this width")
    numbers = struct.unpack(f"<{len(counts) // width}{_FORMATS[width]}", counts)
    return _bounded_int(content.get("offset"), -(2**31), 2**31 - 1), numbers


def _bounded_int(content: Any, least: int, most: int) -> int:
    if not isinstance(content, int) or isinstance(content, bool) or not least <= content <= most:
        raise ValueError("no whole number within its bounds")
    return content


def add(into: Bins, bins: Bins) -> None:
    """Merge `bins` into `into`."""
    for key, count in bins.items():
        into[key] = into.get(key, 0) + count


def value_of(sign: int, scale: int, index: int) -> float:
    """Return the value of a bucket, whose relative distance from both ends of the bucket is the same."""
    power: float = 2.0**-scale
    low: float = 2.0 ** (index * power)
    return sign * low * (2 / (1 + math.exp2(-power)))


def merged(bins: Bins) -> Bins:
    """Return the buckets at the smallest scale, or at the next lower one at which no sign has too many buckets."""
    scale = min((scale for sign, scale, _ in bins if sign), default=0)
    while True:
        same: Bins = {}
        for (sign, finer, index), number in bins.items():
            at = (sign, scale, index // 2 ** (finer - scale)) if sign else (0, 0, 0)
            same[at] = same.get(at, 0) + number
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
    count = sum(bins.values())
    found = {}
    for name, share in SHARES.items():
        rank, below = int(share * (count - 1)), 0
        for sign, scale, index in rising:
            below += bins[sign, scale, index]
            if below > rank:
                found[name] = value_of(sign, scale, index)
                break
    return found
