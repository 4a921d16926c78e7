"""SIGINT, SIGTERM and SIGHUP as a KeyboardInterrupt, so that one orderly stop follows."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tallystream_cli.servers.process import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator


class Interrupts:
    """Raises KeyboardInterrupt on the first signal; later signals have no effect, so they can't cut the stop short.

    Python discards an exception that a signal handler raises inside a callback or a finalizer. Code that waits
    therefore calls `check`, which raises again until `ignore` is called.
    """

    def __init__(self) -> None:
        self._requested = False
        self._ignored = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals inside the block. Only the main thread may call this.

        An ignored SIGHUP stays ignored: with nohup, the process runs on when its terminal is closed.
        """
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        handled = [number for number in SIGNALS if number != signal.SIGHUP or not ignored]
        before = {number: signal.signal(number, self._interrupt) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was a signal and `ignore` was not called."""
        if self._requested and not self._ignored:
            raise KeyboardInterrupt

    def ignore(self) -> None:
        """Ignore all signals from now on."""
        self._ignored = True

    def _interrupt(self, _number: int, _frame: object) -> None:
        first, self._requested = not self._requested, True
        if first:
            self.check()
