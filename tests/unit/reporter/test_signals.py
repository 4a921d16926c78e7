"""The event that a signal handler may set."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from support.interruptions import interruptions
from tallystream.process.signals import SignalSafeEvent

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_signal_handler_can_set_it_at_any_time() -> None:
    """A handler that interrupts a wait sets the event, and the wait ends.

    With `threading.Event`, the process could wait forever.
    """
    event = SignalSafeEvent()

    def prepare() -> Callable[[], object]:
        nonlocal event
        event = SignalSafeEvent()
        return lambda: event.wait(0.001)

    def handle() -> None:
        event.set()

    for error in interruptions(prepare, handle):
        assert error is None
        assert event.is_set()
        assert event.wait(0)


def test_all_waiting_threads_are_woken() -> None:
    """It ends every wait, of threads that wait already and of those that wait later."""
    event = SignalSafeEvent()
    seen: list[bool] = []
    waiting = [Thread(target=lambda: seen.append(event.wait(60))) for _ in range(5)]
    for thread in waiting:
        thread.start()
    assert not event.is_set()
    assert not event.wait(0)
    assert not event.wait(-1)
    event.set()
    event.set()
    for thread in waiting:
        thread.join(60)
    assert seen == [True] * 5
    assert event.wait()
    assert event.is_set()
