"""What is safe when a signal arrives: an event that a handler sets, a lock if a handler raises, and a thread's end."""

from __future__ import annotations

import signal
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Lock


def run_locked(lock: Lock, function: Callable[[], object], *, wait: bool = False) -> None:
    """Call `function` with the lock held. If the lock is not free, return without the call; with `wait`, wait for it.

    The lock is released even if a signal's handler raises, at any moment.
    """
    # Python runs handlers after a call: after `lock.acquire()`, one that raises would leave the lock held. Here no call
    # follows the one that `map` makes until the `try:`. `with lock:` always waits, and in Python 3.14 a handler can run
    # before its block (github.com/python/cpython/issues/148874).
    (acquired,) = map(lock.acquire, (wait,))
    if acquired:
        try:
            function()
        finally:
            lock.release()


def leave_signals_to_other_threads() -> None:
    """Block the signals that end a process, in this thread. Does nothing in the main thread.

    The kernel gives a signal to any thread that does not block it. So a main thread that blocks SIGTERM for a moment is
    safe only if all other threads block it, too, also one that it has joined, which may not have ended yet. A process
    of Celery's pool does so while it holds a lock of the whole pool, just after the last report.
    """
    if threading.current_thread() is not threading.main_thread():
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM))


class SignalSafeEvent:
    """A `threading.Event` without `clear` that is safe to set in a signal handler or a finalizer.

    Python runs signal handlers in the main thread, between any two instructions. If a handler interrupts
    `threading.Event.wait` while it holds the event's lock, `set` waits for that lock forever, and the process never
    ends. `queue.SimpleQueue.put` is reentrant on CPython, and intended for this purpose (Python's documentation).
    """

    def __init__(self) -> None:
        self._set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Set the event, and wake the threads that wait."""
        self._set = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Return True as soon as the event is set, or False after `timeout` seconds, which may be 0 or negative."""
        if self._set:
            return True
        try:
            self._wakes.get(timeout=None if timeout is None else max(timeout, 0.0))
        except Empty:
            return self._set
        self._wakes.put(None)  # for the next thread that waits
        return True
