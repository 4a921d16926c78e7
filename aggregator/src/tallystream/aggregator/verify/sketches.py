"""A DDSketch as docs/metrics.md writes it: decoded to a plain dict of bins, merged by adding, asked by rank."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Bins = dict[tuple[int, int], int]
"""(sign, index of the bin) → how many values; (0, 0) is the zeros."""

LONGEST = 65_536
MOST_BINS = 2048
FURTHEST = 65_536
BIGGEST = 2**63 - 1
GAMMA = 1.01 / 0.99
SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}


def decode(text: object) -> Bins:
    """Return the bins of a sketch in base64.

    Raises:
        ValueError: it is no sketch of version 1.
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        raise ValueError("no text of a sketch's length")
    data = base64.b64decode(text.encode("ascii"), validate=True)
    if data[:1] != b"\1":
        raise ValueError("another version")
    numbers = _leb128(data[1:])
    try:
        zeros = next(numbers)
        bins = {(0, 0): zeros} if zeros else {}
        bins |= _one_sign(1, numbers) | _one_sign(-1, numbers)
    except StopIteration:
        raise ValueError("cut short") from None
    if next(numbers, None) is not None:
        raise ValueError("more than a sketch")
    return bins


def _one_sign(sign: int, numbers: Iterator[int]) -> Bins:
    size, index, first = next(numbers), 0, 0
    bins: Bins = {}
    for place in range(min(size, MOST_BINS + 1)):
        step, count = next(numbers), next(numbers)
        index = index + step if place else (step >> 1) ^ -(step & 1)
        first = index if not place else first
        if (place and not step) or not count or abs(index) > FURTHEST or index - first >= MOST_BINS:
            raise ValueError("bins do not rise, are too far apart, or one is empty")
        bins[sign, index] = count
    return bins


def _leb128(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if number > BIGGEST or shift > 70:
            raise ValueError("a number beyond 64 bits")
        if byte < 128:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("the last number is cut short")


def add(into: Bins, bins: Bins) -> None:
    """Merge `bins` into `into`."""
    for key, count in bins.items():
        into[key] = into.get(key, 0) + count


def value_of(key: tuple[int, int]) -> float:
    """Return what a bin stands for: 2 GAMMA^bin / (GAMMA + 1), with the bin's sign.

    The topmost bins, whose middle is beyond the range of floats, stand for e^709.78.
    """
    sign, index = key
    return sign * math.exp(min(index * math.log(GAMMA) + math.log(2 / (GAMMA + 1)), 709.78))


def quantiles(bins: Bins) -> dict[str, float]:
    """Return every quantile: the bin of the value with rank floor(share * (count - 1)), counted from the least.

    The rank is computed in double precision, as docs/table.md says: of more than 2**53 values it is rounded.
    """
    bins = _kept(bins)
    rising = sorted(bins, key=lambda key: (key[0], key[0] * key[1]))
    count = sum(bins.values())
    found = {}
    for name, share in SHARES.items():
        rank, below = int(share * (count - 1)), 0
        for key in rising:
            below += bins[key]
            if below > rank:
                found[name] = value_of(key)
                break
    return found


def _kept(bins: Bins) -> Bins:
    """Return the bins with those too far below the largest of their sign counted in the lowest that is kept."""
    floors = {sign: max(i for s, i in bins if s == sign) - MOST_BINS + 1 for sign in {s for s, _ in bins}}
    kept: Bins = {}
    for (sign, index), count in bins.items():
        at = sign, max(index, floors[sign])
        kept[at] = kept.get(at, 0) + count
    return kept
