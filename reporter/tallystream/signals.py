"""An event that a signal's handler may set, whatever it interrupts."""

from __future__ import annotations

from queue import Empty, SimpleQueue


class SignalSafeEvent:
    """What `threading.Event` is, without `clear`; safe to set in a signal's handler, and in a finalizer.

    Python runs handlers in the main thread, between any two of its steps. Where they interrupt that thread in
    `threading.Event.wait`, which holds the event's lock for some of its steps, `set` waits for that lock forever: the
    process never ends. A queue's `put` is reentrant on CPython, and made for that (Python's documentation of
    `queue.SimpleQueue`).
    """

    def __init__(self) -> None:
        self._set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Set it, and wake the threads that wait."""
        self._set = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        """Tell whether it has been set."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Return True as soon as it is set, False after `timeout` seconds, of which there may be none or less."""
        if self._set:
            return True
        try:
            self._wakes.get(timeout=None if timeout is None else max(timeout, 0.0))
        except Empty:
            return self._set
        self._wakes.put(None)  # for the next one that waits
        return True
