"""Where the choices of a simulation come from: a seed, a list, or hypothesis. A choice of 0 is the harmless one.

Long runs take a seed. When one fails, `shrink` makes the list of its choices shorter and more harmless, for a test with
`ListedChoices`. Hypothesis shrinks runs of up to about 100 steps; it takes minutes for longer ones.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import DataObject


class OutOfChoicesError(Exception):
    """The run is longer than its list of choices."""


class Choices(Protocol):
    """Where all choices of a run come from."""

    def choose(self, n: int, what: str) -> int:
        """Return a number from 0 to n - 1. `what` says what is chosen."""


class RandomChoices:
    """Choices by a seed. `made` has them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self.made: list[int] = []

    def choose(self, n: int, what: str) -> int:  # noqa: ARG002 (the protocol has it)
        """Return a random number below n."""
        chosen = int(self._random() * n)
        self.made.append(chosen)
        return chosen


class ListedChoices:
    """Choices from a list, each modulo the number of possibilities. After its end, all are 0. `made` has them."""

    def __init__(self, listed: Sequence[int], limit: int | None = None) -> None:
        self._left, self._limit = iter(listed), limit
        self.made: list[int] = []

    def choose(self, n: int, what: str) -> int:  # noqa: ARG002 (the protocol has it)
        """Return the next number of the list, modulo n.

        Raises:
            OutOfChoicesError: `limit` numbers were returned.
        """
        if len(self.made) == self._limit:
            raise OutOfChoicesError
        chosen = next(self._left, 0) % n
        self.made.append(chosen)
        return chosen


class DrawnChoices:
    """Choices that hypothesis draws, so that it can shrink them."""

    def __init__(self, data: DataObject) -> None:
        from hypothesis import strategies as st

        self._data, self._integers = data, st.integers

    def choose(self, n: int, what: str) -> int:
        """Draw a number below n."""
        return self._data.draw(self._integers(0, n - 1), label=what) if n > 1 else 0


def shrink(listed: Sequence[int], fails: Callable[[ListedChoices], bool], runs: int = 1_000) -> list[int]:
    """Return choices with which `fails` is still true: fewer ones, and more of them 0. It makes about so many runs."""
    best = list(listed)
    before = None
    while runs > 0 and best != before:
        before, size = best, len(best)
        while size and runs > 0:
            begin = len(best) - size
            while begin > -size and runs > 0:
                first, end = max(0, begin), begin + size
                for block in ([], [0] * (end - first)):
                    runs -= 1
                    found = _failing(best[:first] + block + best[end:], fails)
                    if found is not None and _cost(found) < _cost(best):
                        best = found
                        break
                begin = min(begin - size, len(best) - size)
            size //= 2
    return best


def _failing(listed: list[int], fails: Callable[[ListedChoices], bool]) -> list[int] | None:
    """Return the choices that were made if the run fails, and fails soon after the end of the list."""
    choices = ListedChoices(listed, limit=len(listed) + 50)
    try:
        if not fails(choices):
            return None
    except OutOfChoicesError:
        return None
    made = choices.made
    while made and not made[-1]:
        made.pop()
    return made


def _cost(listed: list[int]) -> tuple[int, int]:
    return len(listed), len(listed) - listed.count(0)
