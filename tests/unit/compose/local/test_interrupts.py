"""The way out: one signal, however it arrives, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tallystream_cli.local.interrupts import Interrupts, no_orphans


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_the_first_signal_counts(number: signal.Signals) -> None:
    """The first one raises; a second one does not cut short what follows; the handlers are put back."""
    before = signal.getsignal(number)
    interrupts = Interrupts()
    with interrupts.installed():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_a_process_that_was_forgotten_is_ended() -> None:
    """What was started inside and is still there at the end is killed; what was there before is not."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command) as earlier:
        with no_orphans():
            forgotten = subprocess.Popen(command)
        assert not psutil.pid_exists(forgotten.pid) or forgotten.wait(10) == -signal.SIGKILL
        assert earlier.poll() is None
        earlier.kill()


class Finalized:
    """Interrupts this process from a finalizer, where Python swallows what the signal's handler raises."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_whose_exception_was_swallowed_is_seen_by_the_next_check() -> None:
    """The check raises until the stopping has begun, and never while no signal came."""
    interrupts = Interrupts()
    with interrupts.installed():
        interrupts.check()
        Finalized()  # nothing holds it: it ends here
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.ignore()
        interrupts.check()
