"""The thread in which a loop goes on between two epochs."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream_aggregator.stream.epochs import EpochLoop

RESTORE_S = 600.0
"""How long another loop may take to make its table again, before its epoch begins."""


class Between:
    """Runs a loop in a thread, from the end of an epoch until `end` is called. No other thread may use it meanwhile.

    The next epoch begins when those of all loops have ended, which take `epoch_s` seconds. If it is late by
    `RESTORE_S`, the query has ended, and so does the thread.
    """

    def __init__(self, loop: EpochLoop, epoch_s: float) -> None:
        self._next = threading.Event()
        target = partial(loop.run_between, self._next.is_set, epoch_s + RESTORE_S)
        self._thread = threading.Thread(target=target, name="tallystream-between", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for the end of the running step."""
        self._next.set()
        self._thread.join()
