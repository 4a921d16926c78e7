"""SIGTERM and Ctrl-C as a request that the collector looks at between its steps."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set; a second signal has its usual effect. Only for the main thread."""
    event = threading.Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def request(number: int, _frame: FrameType | None) -> None:
        event.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in SIGNALS:
        signal.signal(number, request)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
