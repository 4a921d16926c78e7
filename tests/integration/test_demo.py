"""`tallystream demo` on its own system: its numbers agree exactly, and Ctrl-C leaves no process."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support import processes
from support.commands import running
from support.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


class Demo:
    """A running demo, its output, and every descendant process that was ever seen."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self._seen: set[psutil.Process] = set()

    def output(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def record_processes(self) -> None:
        """Add the current descendants to those that were seen."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen.update(psutil.Process(self.process.pid).children(recursive=True))

    def has_printed(self, text: str) -> bool:
        """Return whether it printed `text`, or has ended."""
        self.record_processes()
        return text in self.output() or self.process.poll() is not None

    def ended(self) -> bool:
        self.record_processes()
        return self.process.poll() is not None

    def alive(self) -> list[psutil.Process]:
        """Return the descendants that still run; psutil compares start times, so a reused process ID does not count."""
        assert self._seen
        return processes.running(self._seen)


@contextmanager
def demo(folder: Path, *more: str) -> Iterator[Demo]:
    """Run `tallystream demo --headless` with its data in `folder`; SIGTERM ends it with the block."""
    log = folder / "demo.log"
    with running(log, "demo", "--headless", "--data", str(folder / "data"), *more, timeout=180) as process:
        yield Demo(process, log)


def test_the_demo_is_exact(tmp_path: Path) -> None:
    """A short demo, with its kill, ends with exit code 0, exact numbers, and no process left."""
    with demo(tmp_path, "--quick") as short:
        wait_until(short.ended, 600, "the demo has ended")
        assert short.process.returncode == 0, short.output()
    assert "Agreement: exact" in short.output()
    assert short.alive() == []


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    """Ctrl-C while its apps consume ends all descendants with the exit code for SIGINT."""
    with demo(tmp_path, "--quick") as stopped:
        wait_until(lambda: stopped.has_printed("app-2 "), 400, "its apps consume")
        assert stopped.process.poll() is None, stopped.output()
        stopped.process.send_signal(signal.SIGINT)
        wait_until(stopped.ended, 180, "it has ended")
        assert stopped.process.returncode == 130, stopped.output()
    wait_until(lambda: not stopped.alive(), 10, "no process is left")
