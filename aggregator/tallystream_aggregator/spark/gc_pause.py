"""Pause Python's garbage collector: it looks for cycles in all that a batch makes, and there are none."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 100_000
"""Objects that a task leaves behind after which all objects are frozen."""

OFTEN = 256
"""Tasks after which they are frozen in any case; at first, while a table grows, more often."""

_tasks = count(1)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Free memory by reference counts alone; for one thread of a task's process, not nested.

    Spark collects after each task, which scans all modules and the whole table and takes longer than a small batch.
    So what is there is collected and frozen from time to time: later collections skip it, reference counts still free
    it.
    """
    gc.disable()
    try:
        yield
    finally:
        many = gc.get_count()[0] > MANY
        gc.enable()
        number = next(_tasks)
        if many or number % OFTEN == 0 or number & (number - 1) == 0:
            gc.collect()
            gc.freeze()
