"""The event that a signal's handler may set."""

from __future__ import annotations

import subprocess
import sys
from threading import Thread

import pytest

from tallystream.reporter.signals import SignalSafeEvent

INTERRUPTED_EVERYWHERE = """
import signal, sys, threading
from tallystream.reporter.signals import SignalSafeEvent

def interrupted(step):
    # Waits, is interrupted before the given step of it, and tells whether there is such a step.
    event, steps, waited = {event}(), 0, False
    signal.signal(signal.SIGTERM, lambda *_: event.set())

    def trace(frame, what, argument):
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += what == "opcode" and not waited
        if what == "opcode" and steps == step and not event.is_set():
            signal.raise_signal(signal.SIGTERM)
        return trace

    print("waits", flush=True)
    sys.settrace(trace)
    event.wait(0.001)
    waited = True
    sys.settrace(None)
    assert event.is_set() == (steps >= step)
    assert event.wait(0) == event.is_set()
    return steps >= step

step = 1
while interrupted(step):
    step += 1
print(step)
"""


def interrupted(event: str, timeout: float) -> str:
    """Interrupt a wait before every single step of it, in a process of its own; return what that printed."""
    script = INTERRUPTED_EVERYWHERE.replace("{event}", event)
    run = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=timeout)
    return run.stdout + run.stderr


def test_a_handler_may_set_it_whatever_it_interrupts() -> None:
    """A signal before any one step of a wait sets the event, and the wait goes on to its end.

    With `threading.Event` the same process waits for itself for ever.
    """
    waits = interrupted("SignalSafeEvent", 60).split()
    assert waits == [*["waits"] * int(waits[-1]), waits[-1]]
    assert int(waits[-1]) > 20
    with pytest.raises(subprocess.TimeoutExpired) as hung:
        interrupted("threading.Event", 5)
    assert (hung.value.stdout or b"").count(b"waits") > 5


def test_all_who_wait_are_woken() -> None:
    """Set once, it ends every wait, of those who wait by then and of those who come later."""
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
