"""The text of a sketch, as the record has it. Pure.

It is base64 of the byte 1 (the version), the count of zeros, then for the positive and for the negative bins their
number and, in rising order, each bin's distance from the one before (the first: from 0, zigzag) and its count; all
numbers as LEB128.
"""

from __future__ import annotations

from array import array
from binascii import a2b_base64, b2a_base64
from operator import sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_VERSION = 1
_MAX_INDEX = 1 << 16  # beyond every float: log(5e-324) and log(1.8e308) are 37225 and 35489 bins away from 0
_MAX_COUNT = (1 << 63) - 1

_Bins = dict[int, int]


def to_text(zeros: int, positive: _Bins, negative: _Bins) -> str:
    """Return the text of these counts."""
    return PatchedText(zeros, positive, negative).base64()


def from_text(text: str, max_bins: int) -> tuple[int, _Bins, _Bins]:
    """Return the zeros, the positive and the negative bins in `text`.

    Raises:
        ValueError: it is no sketch, or has more or other bins than a sketch can have.
    """
    data = a2b_base64(text, strict_mode=True)
    if not data or data[0] != _VERSION:
        raise ValueError(f"not a sketch of version {_VERSION}")
    numbers = _numbers(data[1:])
    try:
        zeros = next(numbers)
        positive, negative = _bins(numbers, max_bins), _bins(numbers, max_bins)
    except StopIteration:
        raise ValueError("the sketch is cut off") from None
    if next(numbers, None) is not None:
        raise ValueError("the sketch has bytes after its end")
    return zeros, positive, negative


class PatchedText:
    """The text of a sketch, made once; where positive bins have grown or are new it is patched, as long as they fit."""

    __slots__ = ("_data", "_lowest", "_places", "_size", "_size_at")

    def __init__(self, zeros: int, positive: _Bins, negative: _Bins) -> None:
        self._data = out = bytearray([_VERSION])
        _put(out, zeros)
        self._size, self._size_at = len(positive), len(out)
        indices = sorted(positive)
        places = _put_bins(out, positive, indices)
        # Where the count of each bin begins, from the lowest to the highest; 0 where there is no bin.
        self._lowest = indices[0] if indices else 0
        self._places = array("i", bytes(4 * (indices[-1] - indices[0] + 1 if indices else 0)))
        for index, place in zip(indices, places, strict=True):
            self._places[index - self._lowest] = place
        _put_bins(out, negative, sorted(negative))

    def patch(self, changed: Iterable[int], positive: Mapping[int, int]) -> bool:
        """Write the counts of these bins again; return whether they fitted, else the text is of no more use."""
        data, lowest, places = self._data, self._lowest, self._places
        span = len(places)
        for index in changed:
            at = index - lowest
            if not 0 <= at < span or not (places[at] or self._insert(at)):
                return False
            count, place = positive[index], places[at]
            while count > 127:
                if data[place] < 128:  # it has become a byte longer
                    return False
                data[place] = count & 127 | 128
                count >>= 7
                place += 1
            data[place] = count
        return True

    def base64(self) -> str:
        """Return the text."""
        return b2a_base64(self._data, newline=False).decode("ascii")

    def _insert(self, at: int) -> bool:
        """Make room for the count of a bin between two others; return whether it fits in."""
        places = self._places
        before = after = at
        while not places[before]:
            before -= 1
        while not places[after]:
            after += 1
        if after - before > 127 or self._size == 127:  # the distance has more than a byte, the number will have
            return False
        self._size += 1
        number = bytearray()
        _put(number, self._size)
        self._data[self._size_at : self._size_at + len(number)] = number
        # Of the distance to the next bin, a byte, come the two distances, and between them the count.
        place = places[after]
        self._data[place - 1 : place] = bytes((at - before, 0, after - at))
        places[after:] = array("i", [later and later + 2 for later in places[after:]])
        places[at] = place
        return True


def _put_bins(out: bytearray, bins: _Bins, indices: list[int]) -> list[int]:
    _put(out, len(bins))
    if not indices:
        return []
    steps = [0, *map(sub, indices[1:], indices)]
    counts = [bins[index] for index in indices]
    _put(out, _zigzag(indices[0]))
    if max(steps) < 128 and max(counts) < 128:  # a byte each: in one go
        begin = len(out)
        pairs = bytearray(2 * len(indices))
        pairs[::2], pairs[1::2] = bytes(steps), bytes(counts)
        out += pairs[1:]
        return list(range(begin, len(out), 2))
    places: list[int] = []
    for step, count in zip(steps, counts, strict=True):
        if places:
            _put(out, step)
        places.append(len(out))
        _put(out, count)
    return places


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _put(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if number > _MAX_COUNT:
                raise ValueError("a number in the sketch leaves 64 bits")
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("a number in the sketch leaves 64 bits")
    if shift:
        raise ValueError("the sketch is cut off")


def _bins(numbers: Iterator[int], max_bins: int) -> _Bins:
    size = next(numbers)
    if size > max_bins:
        raise ValueError(f"the sketch has {size} bins of a sign, {max_bins} at most are taken")
    bins: _Bins = {}
    index = 0
    for position in range(size):
        step = next(numbers)
        if position:
            index += step
        else:
            index = step >> 1 if not step & 1 else -(step + 1 >> 1)
        count = next(numbers)
        if not count or abs(index) > _MAX_INDEX or index in bins:
            raise ValueError("a bin of the sketch is empty, double or out of range")
        bins[index] = count
    if bins and max(bins) - min(bins) >= max_bins:
        raise ValueError("the bins of the sketch lie too far apart")
    return bins
