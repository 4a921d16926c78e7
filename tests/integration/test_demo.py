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

from support.commands import command
from support.processes import running
from support.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SHORT = ("--events", "20000")


class Demo:
    """A running demo, its output, and every descendant process that was ever seen."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self._seen: set[psutil.Process] = set()

    def output(self) -> str:
        """Return its output so far."""
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
        """Return whether it has ended."""
        self.record_processes()
        return self.process.poll() is not None

    def alive(self) -> list[psutil.Process]:
        """Return the descendants that still run; psutil compares start times, so a reused process ID does not count."""
        assert self._seen
        return running(self._seen)


@contextmanager
def demo(folder: Path, *more: str) -> Iterator[Demo]:
    """Run `tallystream demo --headless` with its data in `folder`; SIGTERM ends it with the block."""
    log = folder / "demo.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command("demo", "--headless", "--data", str(folder / "data"), *more),
            stdout=out,
            stderr=out,
        )
    running = Demo(process, log)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(180)


def test_the_demo_is_exact(tmp_path: Path) -> None:
    """A short demo, with its kill, ends with exit code 0, exact numbers, and no process left."""
    with demo(tmp_path, "--quick") as running:
        wait_until(running.ended, 600, "the demo has ended")
        assert running.process.returncode == 0, running.output()
    assert "Agreement: exact" in running.output()
    assert running.alive() == []


@pytest.mark.parametrize("text", ["broker is up", "app-2 "], ids=["starting", "consuming"])
def test_ctrl_c_leaves_no_process(tmp_path: Path, text: str) -> None:
    """Ctrl-C during the start, or while its apps consume, ends all descendants with the exit code for SIGINT."""
    with demo(tmp_path, *SHORT) as running:
        wait_until(lambda: running.has_printed(text), 400, f"it prints {text!r}")
        assert running.process.poll() is None, running.output()
        running.process.send_signal(signal.SIGINT)
        wait_until(running.ended, 180, "it has ended")
        assert running.process.returncode == 130, running.output()
    wait_until(lambda: not running.alive(), 10, "no process is left")
