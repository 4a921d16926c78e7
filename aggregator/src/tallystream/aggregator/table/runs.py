"""Find runs in columns of numbers: of each counter, values that never fall. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Runs(NamedTuple):
    """The places of each run's first and last record, and how many it has; `rest` are the places of all others."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    length: NDArray[np.int64]
    rest: NDArray[np.int64]


def find_runs(counter: NDArray[np.int64], value: NDArray[np.int64], among: NDArray[np.int64]) -> Runs:
    """Return a run for each counter whose values never fall, of the records at the places `among`, which rise.

    `counter` numbers them: a number and a place have to fit into 63 bits together.
    """
    bits = len(counter).bit_length()
    # Sorted as one number each, which is ten times as fast as a stable sort of the places.
    place = np.sort(counter[among] << bits | among) & ((1 << bits) - 1)
    of, values = counter[place], value[place]
    begins = np.concatenate([[True], of[1:] != of[:-1]])[: len(of)]
    first = np.flatnonzero(begins)
    length = np.diff(first, append=len(of))
    falls = np.concatenate([[False], values[1:] < values[:-1]])[: len(of)] & ~begins
    whole = np.ones(len(first), bool)
    whole[(np.cumsum(begins) - 1)[falls]] = False
    rest = place[~np.repeat(whole, length)]
    first, length = first[whole], length[whole]
    return Runs(place[first], place[first + length - 1], length, rest)


def running_max(numbers: NDArray[np.int64], of: NDArray[np.int64], highest: list[int]) -> NDArray[np.int64]:
    """Return the highest so far at each of `numbers`, which are each `of` one series; `highest` begins, and goes on."""
    out = np.empty_like(numbers)
    for one in np.unique(of).tolist():
        mine = of == one
        out[mine] = np.maximum(np.maximum.accumulate(numbers[mine]), highest[one])
        highest[one] = int(out[mine][-1])
    return out
