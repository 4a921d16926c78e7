"""Ends a simulation whose code computes for ever without a scheduling point, so that it can't hang the test run."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 60.0
"""The seconds without progress after which a simulation ends. It is long, as the machine may be busy."""


class HungError(BaseException):
    """A simulation made no progress. No `except Exception` of the code that hangs takes it."""


class Watchdog:
    """Raises `HungError` in the thread that started it when `progress` returns the same number for too long."""

    def __init__(self, progress: Callable[[], int], patience_s: float = PATIENCE_S) -> None:
        self._progress, self._patience_s = progress, patience_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._thread = threading.Thread(target=self._watch, args=(threading.get_ident(),), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. Its thread has ended when this returns."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, thread: int) -> None:
        seen = self._progress()
        while not self._stopped.wait(self._patience_s):
            now = self._progress()
            if now == seen:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(HungError))
                return
            seen = now
