"""Run the same calls on the real pyformance and on `tallystream.pyformance_compat`."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from math import isfinite
from typing import Any

from tallystream import pyformance_compat as ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports pkg_resources, which is deprecated
    import pyformance as real
    import pyformance.meters
    import pyformance.registry
    import pyformance.reporters.carbon_reporter
    import pyformance.reporters.console_reporter

__all__ = ["Clock", "ours", "real", "same"]

WEIGHTED = {"1m_rate", "5m_rate", "15m_rate"}


class Clock:
    """A clock for pyformance that only the test advances."""

    def __init__(self, now: float = 1_700_000_000) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def add(self, seconds: float) -> None:
        self.now += seconds


def same(program: Callable[[Any, Clock], Any], seed: int = 0) -> Any:
    """Return the comparable result of a program, which must be the same with pyformance and Tallystream.

    Both get equal clocks and random numbers.
    """
    results = []
    for library in (real, ours):
        random.seed(seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"setDaemon\(\) is deprecated")
            results.append(comparable(program(library, Clock())))
    theirs, mine = results
    assert mine == theirs
    return mine


def comparable(values: Any) -> Any:
    """Return dumps and statistics without weighted rates, with floats of nine digits, and integral numbers as ints."""
    if isinstance(values, dict):
        return {key: comparable(value) for key, value in values.items() if key not in WEIGHTED}
    if isinstance(values, list | tuple):
        return [comparable(value) for value in values]
    if isinstance(values, float) and isfinite(values):
        rounded = float(f"{values:.9g}")
        return int(rounded) if rounded.is_integer() else rounded
    return repr(values) if isinstance(values, float) else values
