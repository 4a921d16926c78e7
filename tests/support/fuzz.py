"""How many examples a property test tries: few in each run of the tests, many in `make properties`."""

from __future__ import annotations

import os
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

T = TypeVar("T")

FACTOR = float(os.environ.get("TALLYSTREAM_FUZZ_FACTOR", "0.5"))
"""By what the number of examples of every property test is multiplied."""


def examples(count: int, *, fixed: bool = False) -> settings:
    """Try `count` examples times the factor, without a limit of time for any of them.

    If `fixed`, each run of the tests tries the same ones, and only `make properties` tries others.
    """
    return settings(
        max_examples=max(1, round(count * FACTOR)),
        deadline=None,
        derandomize=fixed and FACTOR <= 1,
        suppress_health_check=list(HealthCheck),
    )


def lists(elements: st.SearchStrategy[T], longest: int) -> st.SearchStrategy[list[T]]:
    """Return lists of all lengths alike. Most of those that `st.lists` returns have ten elements or less."""
    return st.integers(0, longest).flatmap(lambda size: st.lists(elements, min_size=size, max_size=size))
