"""What a process and all that it started use: processor seconds and memory, by psutil."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Event, Thread
from typing import NamedTuple, Self

import psutil

EVERY_S = 0.5


class Usage(NamedTuple):
    """Processor seconds since the start, resident memory in bytes, of a process and all that it started."""

    cpu_s: float
    rss: int


def usage(pid: int) -> Usage:
    """Return what the process tree uses now; children that have ended are in it, as their parents waited for them.

    Resident memory is added up over the processes: what they share counts for each.
    """
    cpu, rss = 0.0, 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess), process.oneshot():
                cpu += sum(process.cpu_times()[:4])  # user, system, and the same of its children that have ended
                rss += process.memory_info().rss
    return Usage(cpu, rss)


def machine_cpu_s() -> float:
    """Return the processor seconds that everything on this machine has used."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)


class Meter:
    """Watches the tree of `pid` until the block ends, and what the rest of the machine does meanwhile."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = Event()
        self._last, self.peak_rss = Usage(0.0, 0), 0
        self._began, self._machine = self._ours(), machine_cpu_s()
        self._thread = Thread(target=self._run, name="bench-usage", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_s(self) -> float:
        """Return the tree's processor seconds so far."""
        return self._look().cpu_s

    def others_s(self) -> float:
        """Return the processor seconds that nothing of the benchmark used, so far."""
        return max(0.0, machine_cpu_s() - self._machine - (self._ours() - self._began))

    def _ours(self) -> float:
        # The benchmark's process has the tree and the broker among its children: so this is all of them, once.
        return usage(os.getpid()).cpu_s

    def _look(self) -> Usage:
        now = usage(self._pid)
        if now.rss:  # else it has ended: what it was last stands
            self._last = now
        self.peak_rss = max(self.peak_rss, now.rss)
        return self._last

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            self._look()
