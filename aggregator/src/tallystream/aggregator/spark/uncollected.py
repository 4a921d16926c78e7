"""Work without Python's garbage collector: it looks for cycles among all that a batch makes, where there are none."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 100_000
"""Objects that a task leaves, net, after which all are set aside."""

OFTEN = 256
"""Tasks after which they are in any case; at first, while a table grows, more often."""

_tasks = count(1)


@contextmanager
def uncollected() -> Iterator[None]:
    """Let memory be freed by counting references alone; for one thread of a task's process, not nested.

    Spark collects after each task, which goes through all modules and the whole table, for longer than a small batch
    takes. So every now and then what is there is collected, and left alone from then on: counting
    frees it still.
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
