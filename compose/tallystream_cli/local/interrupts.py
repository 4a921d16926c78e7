"""SIGINT, SIGTERM and SIGHUP as a KeyboardInterrupt of code that asks for it, so that one orderly stop follows."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Handle the signals inside the block: yield a function that raises KeyboardInterrupt after the first of them.

    A stop that does not call it is not cut short by later signals. An ignored SIGHUP stays ignored: with nohup, the
    process runs on when its terminal is closed. Only the main thread may call this.
    """
    received: list[int] = []

    def check() -> None:
        if received:
            raise KeyboardInterrupt

    handled = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in handled}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
