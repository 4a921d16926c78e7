"""Times statements. The sides run alternately, each in its own compiled loop, and the median of all rounds counts."""

from __future__ import annotations

import statistics
import threading
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOP = """
def loop(it, values):
    begin = clock()
    for value in values:
        {statement}
    return clock() - begin
"""


class Side:
    """One of the compared statements. It runs with `it` and `value` for each of many values."""

    def __init__(self, name: str, statement: str, it: Any) -> None:
        self.name, self.it = name, it
        space: dict[str, Any] = {"clock": time.thread_time}
        # Compile the loop for each side, because the interpreter specialises a loop for the types in it.
        exec(_LOOP.format(statement=statement), space)
        self.loop: Callable[[Any, Any], float] = space["loop"]


def nanoseconds(sides: list[Side], values: list[float], calls: int, rounds: int, threads: int = 1) -> dict[str, float]:
    """Return the median processor time of a call of each side, in nanoseconds.

    It includes the time of the loop, which favours the slower side. Other programs on the machine hardly change it.
    With several threads, it is the processor time of the process.
    """
    measured: dict[str, list[float]] = {side.name: [] for side in sides}
    rows = values * (calls // len(values)) if len(values) > 1 else None
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            source = rows if rows is not None else repeat(values[0], calls)
            seconds = side.loop(side.it, source) if threads == 1 else _together(side, values[0], calls, threads)
            if number:  # the first round warms up
                measured[side.name].append(seconds / calls / threads * 1e9)
    return {name: statistics.median(found) for name, found in measured.items()}


def _together(side: Side, value: float, calls: int, threads: int) -> float:
    barrier = threading.Barrier(threads + 1)

    def work() -> None:
        barrier.wait()
        side.loop(side.it, repeat(value, calls))
        barrier.wait()

    for _ in range(threads):
        threading.Thread(target=work).start()
    barrier.wait()
    begin = time.process_time()
    barrier.wait()
    return time.process_time() - begin
