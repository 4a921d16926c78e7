"""Pause Python's garbage collector during a task: it would search the objects of the table, which form no cycles."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_OBJECTS = 100_000
"""If a task leaves more objects than this, all objects are frozen after it."""

FREEZE_INTERVAL = 256
"""All objects are frozen after this many tasks, and after tasks 1, 2, 4, 8 and so on, while a table grows."""

_tasks = count(1)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Free memory only by reference counts inside the block. For one thread of a task's process; don't nest it.

    Spark runs a collection after each task, which scans all modules and the whole table. So all objects are collected
    and frozen from time to time: later collections skip frozen objects, and reference counts still free them.
    """
    gc.disable()
    try:
        yield
    finally:
        has_many = gc.get_count()[0] > MAX_OBJECTS
        gc.enable()
        number = next(_tasks)
        if has_many or number % FREEZE_INTERVAL == 0 or number & (number - 1) == 0:
            gc.collect()
            gc.freeze()
