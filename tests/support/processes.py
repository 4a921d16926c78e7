"""Signals to a process and to all that it started."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all that it started, the process first."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def children(process: psutil.Process) -> list[psutil.Process]:
    """Return what a process has started and is running, nothing where it has ended itself meanwhile."""
    with suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each process that is still there."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
