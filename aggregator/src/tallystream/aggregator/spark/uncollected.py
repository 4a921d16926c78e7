"""Work without Python's garbage collector: it looks for cycles among all that a batch makes, where there are none."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def uncollected() -> Iterator[None]:
    """Let memory be freed by counting references alone; for one thread of a task's process, not nested.

    Spark collects what is left after each task.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
