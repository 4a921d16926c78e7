"""The demonstration's settings, its way out, and its display."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from rich.console import Console

from tallystream.compose.demo.display import Display
from tallystream.compose.demo.interrupts import Interrupts, no_orphans
from tallystream.compose.demo.run import DemoSettings
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_number_of_events() -> None:
    """The whole data set three times over, fewer when quick, and what is asked for wins."""
    assert DemoSettings().number == 1_010_328
    assert DemoSettings(quick=True).number == 100_000
    assert DemoSettings(quick=True, events=50_000).number == 50_000


def test_a_number_out_of_bounds_is_refused() -> None:
    """Too few events would be processed before the kill."""
    with pytest.raises(ConfigError, match="--events: 5"):
        DemoSettings(events=5)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    """What an earlier run left there would be counted too."""
    (tmp_path / "broker").mkdir()
    with pytest.raises(ConfigError, match="empty folder"):
        DemoSettings(data=tmp_path)


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


def test_without_a_terminal_the_display_prints_plain_lines() -> None:
    """Counts come every five seconds at most, and only when they moved; steps are timed by the clock."""
    now = [0.0]
    out = io.StringIO()
    display = Display(100, ("sent",), console=Console(file=out, width=80), clock=lambda: now[0])
    with display, display.step("Send"):
        for number, at in ((10, 1.0), (20, 6.0), (20, 12.0), (30, 13.0)):
            now[0] = at
            display.count("sent", number)
    assert out.getvalue().splitlines() == ["1. Send", "   sent: 20", "   sent: 30"]
    assert display.took == [("Send", 13.0)]
