"""The thread in which a loop goes on between two epochs."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream_aggregator.stream.epochs import EpochLoop


class Between:
    """Runs a loop in a thread, from the end of an epoch until `end` is called. No other thread may use it meanwhile.

    The thread also ends with a stop, which the driver requests when its query has ended, and when it is fenced.
    """

    def __init__(self, loop: EpochLoop) -> None:
        self._next = threading.Event()
        target = partial(loop.run_between, self._next.is_set)
        self._thread = threading.Thread(target=target, name="tallystream-between", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for the end of the running step."""
        self._next.set()
        self._thread.join()
