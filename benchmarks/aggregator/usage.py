"""The processor time and memory of a process and its descendants, from psutil."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Event, Thread
from typing import NamedTuple, Self

import psutil

INTERVAL_S = 0.5


class Usage(NamedTuple):
    """Processor seconds since the start, and memory in bytes, of a process and its descendants."""

    cpu_s: float
    memory: int


def usage(pid: int) -> Usage:
    """Return what the process tree has used up to now, including children that have ended.

    Memory is the sum of the proportional set sizes: pages that processes share count once.
    """
    cpu, memory = 0.0, 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess), process.oneshot():
                cpu += sum(process.cpu_times()[:4])  # user and system time, of itself and of ended children
                memory += process.memory_full_info().pss
    return Usage(cpu, memory)


def machine_cpu_s() -> float:
    """Return the processor seconds that all programs on this machine have used."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)


class Meter:
    """Measures the process tree of `pid` and the rest of the machine until the block ends."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = Event()
        self._last, self.peak_bytes = Usage(0.0, 0), 0
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
        return self._sample().cpu_s

    def others_s(self) -> float:
        """Return the processor seconds that other programs than the benchmark have used so far."""
        return max(0.0, machine_cpu_s() - self._machine - (self._ours() - self._began))

    def _ours(self) -> float:
        # The tree and the broker are children of this process, so this counts all of them once.
        return usage(os.getpid()).cpu_s

    def _sample(self) -> Usage:
        now = usage(self._pid)
        if now.memory:  # 0 if the process has ended: keep the last values
            self._last = now
        self.peak_bytes = max(self.peak_bytes, now.memory)
        return self._last

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._sample()
