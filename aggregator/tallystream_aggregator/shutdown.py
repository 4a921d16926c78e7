"""A request to stop: SIGTERM or Ctrl-C, remembered until somebody looks."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from tallystream.signals import SignalSafeEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    Handler = Callable[[int, FrameType | None], object] | int | None

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest(SignalSafeEvent):
    """Set by SIGTERM or SIGINT. The second one of a kind ends the process at once, or is for the handlers `then`."""

    def __init__(self, then: Mapping[signal.Signals, Handler] | None = None) -> None:
        super().__init__()
        self._then = then or {}

    def install(self) -> Self:
        """Take over both signals; only the main thread may do so."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Nothing else, no line in the log either: what was interrupted may be writing one.
        self.set()
        signal.signal(number, self._then.get(signal.Signals(number), signal.SIG_DFL))


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Yield a request that SIGTERM and SIGINT set, inside the block; the second one of a kind is as it was before.

    Only for the main thread.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield StopRequest(before).install()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
