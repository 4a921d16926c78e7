"""The demonstration as its command, on a system of its own: it agrees to the integer, and Ctrl-C leaves nothing."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest

from support.commands import command
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


class Demo:
    """A running demonstration, what it printed, and every process that was ever seen below it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self._seen: set[psutil.Process] = set()

    def printed(self) -> str:
        """What it printed so far."""
        return self._log.read_text(encoding="utf-8")

    def look(self) -> None:
        """Remember the processes that are below it now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen.update(psutil.Process(self.process.pid).children(recursive=True))

    def has(self, text: str) -> bool:
        """Tell whether it printed `text`, or ended without."""
        self.look()
        return text in self.printed() or self.process.poll() is not None

    def ended(self) -> bool:
        """Tell whether it has ended."""
        self.look()
        return self.process.poll() is not None

    def alive(self) -> list[psutil.Process]:
        """Return which of the processes below it still run; a process ID that is somebody else's now does not count."""
        assert self._seen
        return [one for one in self._seen if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def demo(folder: Path) -> Iterator[Demo]:
    """Run `tallystream demo --quick --headless` with its data in `folder`; it is ended with the block."""
    log = folder / "demo.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command("demo", "--quick", "--headless", "--data", str(folder / "data")), stdout=out, stderr=out
        )
    running = Demo(process, log)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(180)


def test_every_number_agrees(tmp_path: Path) -> None:
    """The quick demonstration, kill and all, ends with exit code 0, an exact agreement, and no process left."""
    with demo(tmp_path) as running:
        wait_until(running.ended, 600, "the demonstration has ended")
        assert running.process.returncode == 0, running.printed()
    assert "Agreement: exact" in running.printed()
    assert running.alive() == []


# Up to the broker: the system is starting. The others: events are sent, and both consumers work.
@pytest.mark.parametrize("moment", ["broker is up", "app-1", "app-2 "], ids=["start", "send", "work"])
def test_ctrl_c_leaves_no_orphan(tmp_path: Path, moment: str) -> None:
    """Ctrl-C while it starts, sends or works ends every process below it; the exit code is the shell's for SIGINT."""
    with demo(tmp_path) as running:
        wait_until(lambda: running.has(moment), 400, f"it says {moment!r}")
        assert running.process.poll() is None, running.printed()
        running.process.send_signal(signal.SIGINT)
        wait_until(running.ended, 180, "it has ended")
        assert running.process.returncode == 130, running.printed()
    wait_until(lambda: not running.alive(), 10, "no process is left")
