"""A request to stop: SIGTERM or Ctrl-C, remembered until somebody looks."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

log = logging.getLogger(__name__)


class StopRequest:
    """Remembers that SIGTERM or SIGINT came; the second one of a kind has its usual effect again."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def install(self) -> None:
        """Take over both signals; only the main thread may do so."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        log.info("%s: finishing the batch", signal.Signals(number).name)
        self.event.set()
        signal.signal(number, signal.SIG_DFL)
