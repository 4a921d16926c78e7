"""Signals to a process and to its descendants."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants. The process comes first."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def children(process: psutil.Process) -> list[psutil.Process]:
    """Return the running children of a process; an empty list if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants with SIGKILL, and wait until all have ended."""
    processes = tree(process.pid)
    send(processes, signal.SIGKILL)
    process.wait(90)
    psutil.wait_procs(processes, timeout=60)


def end(process: subprocess.Popen[bytes], log: Path, timeout: float) -> int:
    """Send SIGTERM unless the process has ended, and return its exit code.

    Raises:
        AssertionError: it has not ended within `timeout` seconds; the message is the end of `log`, with the stacks of
            its threads. It is killed.
    """
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        _abort(process)
        raise AssertionError(f"it did not end within {timeout:g} s of SIGTERM\n{log.read_text()[-50_000:]}") from error


def _abort(process: subprocess.Popen[bytes]) -> None:
    for child in psutil.Process(process.pid).children():
        if child.name() == "java":
            child.send_signal(signal.SIGQUIT)  # a JVM writes the stacks of its threads, and continues
            psutil.wait_procs([child], 2)
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(30)
    finally:
        process.kill()
        process.wait()
