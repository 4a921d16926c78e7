"""A whole number that many threads step up by one, exactly and without a lock of ours.

On CPython with a GIL `next()` of an `itertools.count` is one step in C, which no other thread can come between. Where
there is no GIL to rely on, a lock takes its place.
"""

from __future__ import annotations

import sys
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python's own way to tell the build, whether or not the GIL was switched on again for it.
HAS_GIL = sys.implementation.name == "cpython" and "free-threading" not in sys.version


class LockedTicks:
    """What `itertools.count()` is, for interpreters without a GIL."""

    __slots__ = ("_lock", "_next")

    def __init__(self) -> None:
        self._lock = Lock()
        self._next = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        with self._lock:
            taken = self._next
            self._next = taken + 1
            return taken

    def __repr__(self) -> str:
        return f"count({self._next})"


def new_ticks() -> Iterator[int]:
    """Return an iterator to be stepped by `next()` and read by `ticked()`."""
    return count() if HAS_GIL else LockedTicks()


def ticked(ticks: Iterator[int]) -> int:
    """Return how often it was stepped, without a step: its repr is `count(N)`, and the only way to look at N."""
    return number_in(repr(ticks))


def number_in(text: str) -> int:
    """Return what `ticked` does, of `repr(ticks)`: who has to look at many takes the texts first, in half the time."""
    return int(text[6:-1])
