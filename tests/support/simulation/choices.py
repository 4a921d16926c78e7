"""Where the choices of a simulation come from: a seed, or nowhere. A choice of 0 is the harmless one."""

from __future__ import annotations

import random
from typing import Protocol


class Choices(Protocol):
    """Where all choices of a run come from."""

    def choose(self, n: int, what: str) -> int:
        """Return a number from 0 to n - 1. `what` says what is chosen."""


class RandomChoices:
    """Choices by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def choose(self, n: int, what: str) -> int:  # noqa: ARG002 (the protocol has it)
        """Return a random number below n."""
        return int(self._random() * n)


class HarmlessChoices:
    """All choices are 0."""

    def choose(self, n: int, what: str) -> int:  # noqa: ARG002 (the protocol has it)
        """Return 0."""
        return 0
