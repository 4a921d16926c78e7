"""`tallystream aggregate` as a process that is started, killed and restarted on one checkpoint."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

import psutil

from support.commands import start
from support.kafka import committed
from support.processes import children, end, kill_tree, named, send, tree
from support.wait import wait_until

Victim = Literal["driver", "jvm", "tree"]
"""The Python process, Spark's JVM, or all processes together, as in a power failure."""

WAITING = "waiting for the lease"
"""What a standby logs."""


class Aggregator:
    """The command on the checkpoint in `folder`. At the end of the block it is killed if it still runs.

    `options` are added to those for the broker and the checkpoint. Without `spark`, support/without_spark.py runs its
    loops. `restarts` counts how often it ended by itself.
    """

    def __init__(self, bootstrap_servers: str, prefix: str, folder: Path, *options: str, spark: bool = False) -> None:
        self.servers, self.prefix, self.folder = bootstrap_servers, prefix, folder
        self.checkpoint, self.log, self._ready = folder / "checkpoint", folder / "aggregate.log", folder / "ready"
        self.restarts = 0
        self._options, self._spark = options, spark
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process

    def start(self, *options: str) -> Self:
        """Start it without waiting, with more options."""
        self._ready.unlink(missing_ok=True)
        self._process = start(
            self.log,
            *("aggregate", "--bootstrap-servers", self.servers, "--topic-prefix", self.prefix),
            *("--checkpoint", str(self.checkpoint), "--ready-file", str(self._ready), *self._options, *options),
            spark=self._spark,
        )
        return self

    def wait_ready(self, timeout: float = 300.0) -> Self:
        """Return when it is ready."""
        wait_until(
            lambda: self._ready.exists() or self.process.poll() is not None, timeout, "the aggregator is processing"
        )
        assert self.process.poll() is None, self.output()
        return self

    def output(self) -> str:
        """Return the output of all its processes so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def kill(self, victim: Victim) -> None:
        """Kill it with SIGKILL, and return when the Python process and the JVM have ended."""
        if victim == "tree":
            kill_tree(self.process)
            return
        processes = tree(self.process.pid)
        java = named(processes, "java")
        send(processes[:1] if victim == "driver" else java, signal.SIGKILL)
        self.process.wait(90)  # a driver without its JVM logs an error and ends
        _, alive = psutil.wait_procs(java, timeout=60)
        assert not alive

    def kill_worker(self) -> bool:
        """Kill one of Spark's Python workers with SIGKILL; return False if none runs now."""
        daemons = [child for parent in named(tree(self.process.pid), "java") for child in children(parent)]
        workers = [worker for daemon in daemons for worker in children(daemon)]
        send(workers[-1:], signal.SIGKILL)
        return bool(workers)

    def take_over(self, number: signal.Signals) -> None:
        """Start a standby, and send SIGSTOP or SIGKILL to what runs. What is stopped continues after the takeover.

        Return when the standby is ready, and the other one has ended.
        """
        replaced, waiting = self.process, self.output().count(WAITING)
        self.start()
        wait_until(lambda: self.output().count(WAITING) > waiting, 120, "the new one is a standby")
        processes = tree(replaced.pid)
        send(processes, number)
        try:
            self.wait_ready()
        finally:
            send(processes, signal.SIGCONT)
        code = replaced.wait(120)
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else 1), self.output()

    def wait_committed(self, topic: str, offsets: dict[int, int], timeout: float, what: str) -> float:
        """Return the seconds until the offset of each partition is committed. Restart the command if it ends."""
        began = time.monotonic()

        def reached() -> bool:
            if self.process.poll() is not None:
                self.restarts += 1
                self.start()
            group = self.prefix + "tallystream-aggregator"
            return all(committed(self.servers, group, topic, partition) >= end for partition, end in offsets.items())

        wait_until(reached, timeout, what)
        return time.monotonic() - began

    def wait_exit(self, timeout: float, what: str) -> int | None:
        """Return the exit code of a process that has to end by itself within `timeout` seconds."""
        wait_until(lambda: self.process.poll() is not None, timeout, what)
        return self.process.poll()

    def stop(self, timeout: float = 120.0) -> int:
        """Stop it with SIGTERM, and return its exit code."""
        return end(self.process, self.log, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill("tree")


@contextmanager
def running_aggregator(
    bootstrap_servers: str, prefix: str, folder: Path, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command on the checkpoint in `folder` until the block ends; yields when it processes records."""
    aggregator = Aggregator(bootstrap_servers, prefix, folder, *options).start()
    try:
        yield aggregator.wait_ready().process
    finally:
        aggregator.stop(300)
