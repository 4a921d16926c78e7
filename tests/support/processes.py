"""Signals to a process and to its descendants. Each of them may end at any time."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants. The process comes first.

    Raises:
        psutil.NoSuchProcess: it has ended, and its exit code was read.
    """
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those of the processes that still run. A zombie does not, nor does one that ends meanwhile."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def children(process: psutil.Process) -> list[psutil.Process]:
    """Return the running children of a process; an empty list if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def named(processes: Iterable[psutil.Process], name: str) -> list[psutil.Process]:
    """Return the processes of this name that still exist."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.name() == name:
                found.append(process)
    return found


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants with SIGKILL, and wait until all have ended.

    Does nothing if it has ended: its children have another parent then.
    """
    processes = tree(process.pid) if process.poll() is None else []
    send(processes, signal.SIGKILL)
    process.wait(90)
    psutil.wait_procs(processes, timeout=60)


def end(process: subprocess.Popen[bytes], log: Path, timeout: float) -> int:
    """Send SIGTERM unless the process has ended, and return its exit code.

    Raises:
        AssertionError: as for `exit_code`.
    """
    if process.poll() is None:
        process.terminate()
    return exit_code(process, log, timeout)


def exit_code(process: subprocess.Popen[bytes], log: Path, timeout: float) -> int:
    """Wait for the end of a process, and return its exit code.

    Raises:
        AssertionError: it has not ended within `timeout` seconds; the message is the end of `log`, with the stacks of
            its threads. It is killed, with its descendants.
    """
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        _abort(process)
        raise AssertionError(f"it did not end within {timeout:g} s\n{log.read_text()[-50_000:]}") from error


def _abort(process: subprocess.Popen[bytes]) -> None:
    processes = tree(process.pid)
    java = named(processes, "java")
    send(java, signal.SIGQUIT)  # a JVM writes the stacks of its threads, and continues
    psutil.wait_procs(java, 2)
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(30)
    finally:
        send(processes, signal.SIGKILL)
        process.wait()
