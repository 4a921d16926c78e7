"""Signals wait while a process is being started."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")


def undisturbed(start: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Return what `start` returns; Python's handlers of SIGINT, SIGTERM and SIGHUP run after it, not inside it.

    Where one of them raises then, `undo` is called with what has been started. A fork runs callbacks, in the parent
    and in the child, and Python prints and swallows what a handler raises in one of them (`logging` and `threading`
    have some). A child that was sent the signal too, as by a terminal to all of a process group, goes on to be what it
    was to be: whoever started it ends it. Handlers run in the main thread alone: elsewhere nothing waits.
    """
    if threading.current_thread() is not threading.main_thread():
        return start()
    came: list[int] = []
    ours = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}
    try:
        for number in ours:
            signal.signal(number, lambda number, _frame: came.append(number))
        started = start()
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    try:
        for signalled in dict.fromkeys(came):
            signal.raise_signal(signalled)
    except BaseException:
        undo(started)
        raise
    return started
