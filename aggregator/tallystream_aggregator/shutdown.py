"""Turn SIGTERM and SIGINT (Ctrl-C) into a stop request that the main loop polls; run functions in threads beside it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Self

from tallystream.process.signals import SignalSafeEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest(SignalSafeEvent):
    """An event that SIGTERM and SIGINT set. A second signal of the same number ends the process at once."""

    def install(self) -> Self:
        """Install the handler of both signals. Only the main thread may call this."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Nothing is logged here: the interrupted code may hold the lock of a log handler.
        self.set()
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Yield a stop request that SIGTERM and SIGINT set. At the end of the block, restore the earlier handlers.

    Only the main thread may call this.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield StopRequest().install()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def in_threads(functions: Mapping[str, Callable[[SignalSafeEvent], object]], stop: SignalSafeEvent) -> Iterator[None]:
    """Call each function in a thread of that name during the block, with an event that is set at its end.

    If one fails, `stop` is set, and the end of the block raises the error.
    """
    ended, errors = SignalSafeEvent(), list[BaseException]()

    def run(function: Callable[[SignalSafeEvent], object]) -> None:
        try:
            function(ended)
        except BaseException as error:  # noqa: BLE001 (it is raised again at the end of the block)
            errors.append(error)
            stop.set()

    threads = [Thread(target=run, args=(function,), name=name, daemon=True) for name, function in functions.items()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
