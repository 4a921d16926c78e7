"""Pause Python's garbage collector during a task: it would search the objects of the table, which form no cycles."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def gc_paused() -> Iterator[None]:
    """Free memory only by reference counts inside the block. For one thread of a task's process; don't nest it.

    Spark runs a collection after each task, which scans all modules and the whole table. So what the block leaves is
    collected and frozen: later collections skip frozen objects, and reference counts still free them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
