"""Ctrl-C at any moment: one orderly way out that nothing cuts short, and no process left behind."""

from __future__ import annotations

import contextlib
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from tallystream_cli.servers.process import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator

GONE_S = 10.0


class Interrupts:
    """Turns the first SIGINT, SIGTERM or SIGHUP into KeyboardInterrupt, out of whatever is being waited for.

    Python swallows an exception that a handler raises inside a callback or a finalizer, so code that waits calls
    `check`, too: it raises again until `ignore`. Later signals do nothing: the way out takes as long as it takes.
    """

    def __init__(self) -> None:
        self._requested = False
        self._ignored = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals inside the block; only the main thread may do so."""
        before = {number: signal.signal(number, self._interrupt) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came and nothing is being stopped yet."""
        if self._requested and not self._ignored:
            raise KeyboardInterrupt

    def ignore(self) -> None:
        """From now on, signals do nothing."""
        self._ignored = True

    def _interrupt(self, _number: int, _frame: object) -> None:
        first, self._requested = not self._requested, True
        if first:
            self.check()


@contextmanager
def no_orphans() -> Iterator[None]:
    """At the end of the block, kill what it started and did not end.

    A signal may come in the instant in which a process was started and nobody has its ID yet: this finds it.
    """
    me = psutil.Process()
    before = {(child.pid, child.create_time()) for child in _children(me)}
    try:
        yield
    finally:
        left = [child for child in _children(me) if (child.pid, _created(child)) not in before]
        for child in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(left, GONE_S)


def _children(process: psutil.Process) -> list[psutil.Process]:
    return process.children(recursive=True)


def _created(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.create_time()
    return 0.0
