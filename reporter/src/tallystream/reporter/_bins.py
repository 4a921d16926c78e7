"""The bins of one sign of a sketch, as counts and as bytes. Pure.

The bytes are the number of bins and, in rising order, each bin's distance from the one before (the first: from 0,
zigzag) and its count; all numbers as LEB128.
"""

from __future__ import annotations

import re
from itertools import accumulate
from math import log2
from operator import sub

RELATIVE_ERROR = 0.01
GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
BINS_PER_2 = 1 / log2(GAMMA)
MAX_BINS = 2048
"""Bins of each sign."""

_MAX_INDEX = 1 << 16  # beyond every float: log(5e-324) and log(1.8e308) are 37225 and 35489 bins away from 0
_MAX_COUNT = (1 << 63) - 1
_LONG = re.compile(rb"[\x80-\xff]{1,9}[\x00-\x7f]?")
"""A number of several bytes; without its last one, if it is cut off or too long for 64 bits."""

Bins = dict[int, int]
"""How many values are in each bin, by the bin's number."""


def collapse(bins: Bins) -> None:
    """Count in the lowest of the MAX_BINS bins below the highest one what lies below that."""
    if len(bins) > MAX_BINS or (bins and max(bins) - min(bins) >= MAX_BINS):
        floor = max(bins) - MAX_BINS + 1
        low = [index for index in bins if index < floor]
        if low:
            bins[floor] = bins.get(floor, 0) + sum(bins.pop(index) for index in low)


def bytes_of(bins: Bins) -> bytes:
    """Return their bytes."""
    out = bytearray(number(len(bins)))
    put_counts(out, bins, sorted(bins))
    return bytes(out)


def put_counts(out: bytearray, bins: Bins, indices: list[int]) -> list[int]:
    """Append their bytes, but for their number, given which there are; return where the count of each begins."""
    if not indices:
        return []
    steps = [0, *map(sub, indices[1:], indices)]
    counts = [bins[index] for index in indices]
    out += number(zigzag(indices[0]))
    if max(steps) < 128 and max(counts) < 128:  # a byte each: in one go
        begin = len(out)
        pairs = bytearray(2 * len(indices))
        pairs[::2], pairs[1::2] = bytes(steps), bytes(counts)
        out += pairs[1:]
        return list(range(begin, len(out), 2))
    places: list[int] = []
    for step, count in zip(steps, counts, strict=True):
        if places:
            out += number(step)
        places.append(len(out))
        out += number(count)
    return places


def take_bins(numbers: list[int], begin: int) -> tuple[Bins, int]:
    """Return the bins that begin at this place of the numbers, and the place after them.

    Raises:
        ValueError: a sketch can't have such bins, or the numbers end too early.
    """
    size = numbers[begin] if begin < len(numbers) else 0
    end = begin + 1 + 2 * size
    if size > MAX_BINS:
        raise ValueError(f"the sketch has {size} bins of a sign, {MAX_BINS} at most are taken")
    if end > len(numbers):
        raise ValueError("the sketch is cut off")
    if not size:
        return {}, end
    first, *steps = numbers[begin + 1 : end : 2]
    first = first >> 1 if not first & 1 else -(first + 1 >> 1)
    indices, counts = list(accumulate(steps, initial=first)), numbers[begin + 2 : end : 2]
    last = indices[-1]
    if 0 in counts or 0 in steps or first < -_MAX_INDEX or last > _MAX_INDEX:
        raise ValueError("a bin of the sketch is empty, double or out of range")
    if last - first >= MAX_BINS:
        raise ValueError("the bins of the sketch lie too far apart")
    return dict(zip(indices, counts, strict=True)), end


def number(value: int) -> bytes:
    """Return a number that is not negative as LEB128."""
    if value < 128:
        return _SHORT[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def numbers_in(data: bytes) -> list[int]:
    """Return the numbers of these bytes.

    Raises:
        ValueError: one is cut off, or leaves 64 bits.
    """
    numbers: list[int] = []
    begin = 0
    for long in _LONG.finditer(data):  # all others are a byte each
        start, end = long.span()
        numbers += data[begin:start]
        numbers.append(_number_of(data[start:end]))
        begin = end
    numbers += data[begin:]
    return numbers


def _number_of(data: bytes) -> int:
    if data[-1] > 127:
        raise ValueError("a number in the sketch is cut off, or leaves 64 bits")
    if len(data) == 2:  # most of those that are no single byte
        return data[0] & 127 | data[1] << 7
    value = sum((byte & 127) << 7 * at for at, byte in enumerate(data))
    if value > _MAX_COUNT:
        raise ValueError("a number in the sketch leaves 64 bits")
    return value


def zigzag(value: int) -> int:
    """Return 0, 1, 2, 3, 4 for 0, -1, 1, -2, 2."""
    return value << 1 if value >= 0 else (-value << 1) - 1


_SHORT = [bytes([value]) for value in range(128)]
