"""Signals: while a process is started, and as one KeyboardInterrupt that starts an orderly stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tallystream_cli.local.interrupts import Interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIGNAL_IN_FORK_CALLBACKS = """
import os, signal, sys
from pathlib import Path
import psutil
from tallystream_cli.local.interrupts import Interrupts
from tallystream_cli.servers.process import spawn

def send(): os.kill(os.getpid(), signal.{number})

os.register_at_fork(after_in_parent=send, after_in_child=send)
with Interrupts().installed():
    try:
        spawn([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
    except KeyboardInterrupt:
        print("interrupted, running:", psutil.Process().children())
"""


@pytest.fixture
def hangup_ends_this_process() -> Iterator[None]:
    """The default handler of SIGHUP, also if these tests run with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup_ends_this_process")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_during_the_fork_interrupts_once_and_leaves_no_process(tmp_path: Path, number: str) -> None:
    """Parent and child get the signal in callbacks of the fork; KeyboardInterrupt is raised once, after the start."""
    code = SIGNAL_IN_FORK_CALLBACKS.format(number=number)
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "log")], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.stdout, run.stderr) == ("interrupted, running: []\n", "")
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.usefixtures("hangup_ends_this_process")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_the_first_signal_interrupts(number: signal.Signals) -> None:
    """The second signal does not interrupt the stop that follows the first; the earlier handlers are restored."""
    before = signal.getsignal(number)
    interrupts = Interrupts()
    with interrupts.installed():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("hangup_ends_this_process")
def test_with_nohup_a_closed_terminal_does_not_interrupt() -> None:
    """A SIGHUP that is ignored before stays ignored, and other signals interrupt."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts().installed():
        os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


class SignalInFinalizer:
    """Sends SIGINT to this process in its finalizer, where Python discards an exception of the handler."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_check_raises_after_a_signal_whose_exception_was_discarded() -> None:
    """`check` raises after the signal until `ignore` is called, and never without a signal."""
    interrupts = Interrupts()
    with interrupts.installed():
        interrupts.check()
        SignalInFinalizer()  # without a reference it is finalized here
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.ignore()
        interrupts.check()
