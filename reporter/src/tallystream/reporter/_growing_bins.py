"""Bins of one sign that are counted in their own bytes, so that a report finds these made. Pure."""

from __future__ import annotations

import sys
from array import array
from math import ceil, log2
from typing import TYPE_CHECKING

from tallystream.reporter._bins import BINS_PER_2, MAX_BINS, Bins, collapse, number, put_counts, zigzag

if TYPE_CHECKING:
    from collections.abc import Iterable

FEW = 16
"""New bins that are put in one by one; for more the bytes are made anew."""

_NOWHERE = -(1 << 30)
_ONES = (array("i", [1]) * MAX_BINS).tobytes()


class GrowingBins:
    """Counts that only grow. Not locked: its owner does that."""

    __slots__ = ("_lowest", "_places", "_size", "_text")

    def __init__(self) -> None:
        self._make({})

    def add(self, values: Iterable[float]) -> list[float]:
        """Count these values, each in its bin; return those that have none in these bins: zeros, and negative ones."""
        text, places, lowest = self._text, self._places, self._lowest
        missing: list[int] = []
        others: list[float] = []
        for value in values:
            try:
                at = ceil(log2(value) * BINS_PER_2) - lowest
                place = places[at]
                count = text[place] + 1
            except IndexError:  # above the highest bin, or between two: nowhere is far before the text
                missing.append(at + lowest)
                continue
            except ValueError:
                others.append(value)
                continue
            if at < 0:  # where the last places would be meant
                missing.append(at + lowest)
            elif count & 127:
                text[place] = count
            else:
                self._carry(at)
        if missing:
            self._add_missing(missing)
        return others

    def bins(self) -> Bins:
        """Return them as counts."""
        lowest = self._lowest
        return {lowest + at: self._count(place) for at, place in enumerate(self._places) if place >= 0}

    def encode(self) -> bytes:
        """Return their bytes, as `bytes_of` gives them."""
        return number(self._size) + self._text

    def _make(self, bins: Bins) -> None:
        indices = sorted(bins)
        self._size, self._lowest = len(indices), indices[0] if indices else 0
        self._text = bytearray()  # all but their number
        # Where the count of each bin begins, from the lowest to the highest.
        self._places = _nowhere(indices[-1] - indices[0] + 1 if indices else 0)
        for index, place in zip(indices, put_counts(self._text, bins, indices), strict=True):
            self._places[index - self._lowest] = place

    def _add_missing(self, missing: list[int]) -> None:
        least, greatest = min(missing), max(missing)
        end = max(self._lowest + len(self._places), greatest + 1)
        if not self._size or len(missing) > FEW or end - min(self._lowest, least) > MAX_BINS:
            bins = self.bins()
            for index in missing:
                bins[index] = bins.get(index, 0) + 1
            collapse(bins)
            self._make(bins)
            return
        for index in missing:
            at = index - self._lowest
            if 0 <= at < len(self._places) and (place := self._places[at]) >= 0:  # the second value of a new bin
                self._text[place] += 1
            else:
                self._insert(at)

    def _insert(self, at: int) -> None:
        """Put a new bin with a count of one where it belongs: in place of a distance come two, and the count between.

        Outside, the places reach as far as the new bin first.
        """
        places, text, span = self._places, self._text, len(self._places)
        if at < 0:
            places[:0] = _nowhere(-at)
            self._lowest += at
            first, after, at = number(zigzag(self._lowest)), -at, 0
            begin, end = 0, places[after]
            last = number(after)
        elif at >= span:
            places += _nowhere(at - span + 1)
            first, after = number(at - span + 1), at + 1
            begin = end = len(text)
            last = b""
        else:
            before, after = at - 1, at + 1
            while places[before] < 0:
                before -= 1
            while places[after] < 0:
                after += 1
            first, last = number(at - before), number(after - at)
            end = places[after]
            begin = end - len(number(after - before))
        new = first + b"\1" + last
        text[begin:end] = new
        self._shift(after, len(new) - end + begin)
        places[at] = begin + len(first)
        self._size += 1

    def _carry(self, at: int) -> None:
        """Count one more in a bin, where that is more than a change of the count's first byte."""
        text, place = self._text, self._places[at]
        while text[place] & 127 == 127:
            last = text[place] < 128
            text[place] = 128
            place += 1
            if last:
                text[place:place] = b"\0"
                self._shift(at + 1, 1)
        text[place] += 1

    def _shift(self, first: int, by: int) -> None:
        # All of them in one addition, of numbers that have a digit for each place. Nowhere is negative, but far from
        # zero: no digit overflows.
        tail = memoryview(self._places)[first:].cast("B")
        ones = int.from_bytes(_ONES[: len(tail)], sys.byteorder)
        tail[:] = (int.from_bytes(tail, sys.byteorder) + by * ones).to_bytes(len(tail), sys.byteorder)

    def _count(self, place: int) -> int:
        end = self._end(place)
        return sum((byte & 127) << 7 * at for at, byte in enumerate(self._text[place:end]))

    def _end(self, place: int) -> int:
        while self._text[place] > 127:
            place += 1
        return place + 1


def _nowhere(size: int) -> array[int]:
    return array("i", [_NOWHERE]) * size
