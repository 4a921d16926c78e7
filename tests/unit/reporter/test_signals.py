"""The event that a signal handler may set."""

from __future__ import annotations

import subprocess
import sys
from threading import Thread

from tallystream.process.signals import SignalSafeEvent

INTERRUPTED_EVERYWHERE = """
import signal, sys
from tallystream.process.signals import SignalSafeEvent

def interrupted(step):
    # Waits, with a signal before the given step of the wait, and returns whether there is such a step.
    event, steps, waited = SignalSafeEvent(), 0, False
    signal.signal(signal.SIGTERM, lambda *_: event.set())

    def trace(frame, what, argument):
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += what == "opcode" and not waited
        if what == "opcode" and steps == step and not event.is_set():
            signal.raise_signal(signal.SIGTERM)
        return trace

    sys._getframe().f_trace_opcodes = True  # Python 3.12 traces no instruction without it
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


def test_a_signal_handler_can_set_it_at_any_time() -> None:
    """A signal at any instruction of a wait sets the event, and the wait ends.

    With `threading.Event`, the process could wait forever.
    """
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_EVERYWHERE], check=False, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 20


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
