"""How statements are timed: sides by turns, each in a loop compiled for it alone, medians of all rounds."""

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
    """One contestant: `statement` is run with `it` and `value` for each of many values."""

    def __init__(self, name: str, statement: str, it: Any) -> None:
        self.name, self.it = name, it
        space: dict[str, Any] = {"clock": time.thread_time}
        # Compiled again for each side, since the interpreter specialises a loop for what runs in it.
        exec(_LOOP.format(statement=statement), space)
        self.loop: Callable[[Any, Any], float] = space["loop"]


def nanoseconds(sides: list[Side], values: list[float], calls: int, rounds: int, threads: int = 1) -> dict[str, float]:
    """Return the median time of a call of each side, the loop's own time included, which favours the slower side.

    It is the processor's time, which other work on the machine hardly changes; of several threads, that of the process.
    """
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    rows = values * (calls // len(values)) if len(values) > 1 else None
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            source = rows if rows is not None else repeat(values[0], calls)
            seconds = side.loop(side.it, source) if threads == 1 else _together(side, values[0], calls, threads)
            if number:  # the first round warms up
                taken[side.name].append(seconds / calls / threads * 1e9)
    return {name: statistics.median(found) for name, found in taken.items()}


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
