"""Sketches as in docs/record.md, as plain dicts of buckets: decoding, merging, quantiles."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

Bins = dict[tuple[int, int, int], int]
"""(sign, scale, index of the bucket) → number of values. (0, 0, 0) counts the zeros."""

MAX_BUCKETS = 4096
MAX_INT64 = 2**63 - 1
SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}


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
    return bins | _one_sign(1, scale, content.get("positive")) | _one_sign(-1, scale, content.get("negative"))


def _one_sign(sign: int, scale: int, content: Any) -> Bins:
    if content is None:
        return {}
    if not isinstance(content, dict) or not isinstance(content.get("counts"), list):
        raise ValueError("no buckets")  # noqa: TRY004
    first = index = _bounded_int(content.get("offset"), -(2**31), 2**31 - 1)
    bins: Bins = {}
    for one in content["counts"]:
        count = _bounded_int(one, -(2**31), MAX_INT64)
        if count > 0:
            bins[sign, scale, index] = count
        index += max(1, -count)
    _require_range(scale, first, index)
    return bins


def _require_range(scale: int, first: int, end: int) -> None:
    if end - first > MAX_BUCKETS:
        raise ValueError("too many buckets")
    ends = first / 2.0**scale, end / 2.0**scale
    # Rounded outwards if a bucket is wider than the smallest number's power of two.
    if ends[0] < -1075 - (2.0**-scale if scale < 0 else 0) or ends[1] > 1024:
        raise ValueError("beyond the numbers that there are")


class _Side(msgspec.Struct, forbid_unknown_fields=True):
    offset: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
    counts: list[int]


class _Sketch(msgspec.Struct, forbid_unknown_fields=True):
    scale: Annotated[int, msgspec.Meta(ge=-10, le=20)]
    zero_count: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)] = 0
    positive: _Side | None = None
    negative: _Side | None = None


_decode_sketch = msgspec.json.Decoder(_Sketch).decode


def number_in(text: bytes) -> int | None:
    """Return how many values a sketch has, None if only `decode` can tell whether it is one."""
    try:
        sketch = _decode_sketch(text)
        number = sketch.zero_count
        for side in (sketch.positive, sketch.negative):
            if side is None:
                continue
            empty = [-one for one in side.counts if one < 0]  # runs of empty buckets
            if max(empty, default=0) > 2**31 or max(side.counts, default=0) > MAX_INT64:
                return None
            length = len(side.counts) - len(empty) + sum(empty)
            _require_range(sketch.scale, side.offset, side.offset + length)
            number += sum(side.counts) + sum(empty)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    return number


def _bounded_int(content: Any, least: int, most: int) -> int:
    if not isinstance(content, int) or isinstance(content, bool) or not least <= content <= most:
        raise ValueError("no whole number within its bounds")
    return content


def encode(bins: Bins) -> dict[str, Any]:
    """Return the sketch with these buckets, which have the same scale."""
    content: dict[str, Any] = {"scale": max((scale for sign, scale, _ in bins if sign), default=0)}
    content["zero_count"] = bins.get((0, 0, 0), 0)
    for name, sign in (("positive", 1), ("negative", -1)):
        counts = {index: count for (each, _, index), count in bins.items() if each == sign}
        if counts:
            first, last = min(counts), max(counts)
            content[name] = {"offset": first, "counts": [counts.get(index, 0) for index in range(first, last + 1)]}
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
