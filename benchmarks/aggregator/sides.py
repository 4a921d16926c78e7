"""The contestants: how each is started on a topic, where it writes its sums, and when it is ready."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import psutil

from benchmarks.aggregator import kstreams_build
from tallystream_aggregator import jars
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.process import spawn, tail, terminate

if TYPE_CHECKING:
    import subprocess

OURS, PEER, PEER_LINGER_0 = "ours", "kstreams", "kstreams-linger0"
"""As --sides names them: Kafka Streams with exactly_once_v2, and with at_least_once and linger 0."""
ALL = (OURS, PEER, PEER_LINGER_0)
COMMAND = str(Path(sys.executable).with_name("tallystream"))
PATIENCE_S = 60.0
LINGER_0 = "kafka-streams, at_least_once, linger 0"
HEAP = "1g"
"""The heap's limit of either JVM: the default of `tallystream aggregate`."""


class SideError(Exception):
    """A contestant ended, or did not begin; the message ends with what it said last."""


class Side(Protocol):
    """A contestant; `name` is what the tables call it."""

    @property
    def name(self) -> str:
        """What the tables call it."""

    def output(self, prefix: str) -> str:
        """Return the topic of the sums."""

    def command(self, bootstrap_servers: str, prefix: str, folder: Path) -> list[str]:
        """Return its command line; its state goes into `folder`, its output to `log` there."""

    def ready(self, folder: Path) -> bool:
        """Tell whether it processes."""


@dataclass(frozen=True)
class Ours:
    """`tallystream aggregate` as a user gets it; `options` are further ones, for an experiment."""

    options: tuple[str, ...] = ()
    name: str = "tallystream"

    def with_options(self, *options: str) -> Self:
        """Return this side with further options."""
        return replace(self, options=(*self.options, *options))

    def with_latency(self, latency: str) -> Self:
        """Return this side with an aim for the latency, unless its options have one."""
        return replace(self, options=("--latency", latency, *self.options))

    def output(self, prefix: str) -> str:
        """Return the topic of the sums."""
        return Topics(prefix).agg

    def command(self, bootstrap_servers: str, prefix: str, folder: Path) -> list[str]:
        """Return its command line."""
        return [
            *(COMMAND, "aggregate"),
            *("--bootstrap-servers", bootstrap_servers, "--topic-prefix", prefix),
            *("--checkpoint", str(folder / "checkpoint"), "--ready-file", str(folder / "ready"), *self.options),
        ]

    def ready(self, folder: Path) -> bool:
        """Tell whether its first batch has run."""
        return (folder / "ready").exists()


@dataclass(frozen=True)
class KafkaStreams:
    """The original topology in Kafka Streams; `options` are settings of Streams, KEY=VALUE."""

    mode: str = "eos"
    options: tuple[str, ...] = ()
    name: str = "kafka-streams"

    def output(self, prefix: str) -> str:
        """Return the topic of the sums."""
        return Topics(prefix).agg

    def command(self, bootstrap_servers: str, prefix: str, folder: Path) -> list[str]:
        """Return its command line; it is built first where that has not been done."""
        topics = Topics(prefix)
        return [
            *(jars.java(), f"-Xmx{HEAP}", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            *("-cp", os.pathsep.join(kstreams_build.classpath()), "bench.KStreamsAggregator"),
            *(self.mode, topics.metrics, topics.agg, f"bootstrap.servers={bootstrap_servers}"),
            *(f"application.id={prefix}kstreams", f"state.dir={folder / 'state'}", *self.options),
        ]

    def ready(self, folder: Path) -> bool:
        """Tell whether Streams says that it is running."""
        log = folder / "log"
        return log.exists() and "STATE RUNNING" in log.read_text(encoding="utf-8", errors="replace")


class Running:
    """A contestant that was launched; ended, with all that it started, when the block ends."""

    def __init__(self, side: Side, bootstrap_servers: str, prefix: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = side.command(bootstrap_servers, prefix, folder)
        self._side, self._folder = side, folder
        self.launched = time.monotonic()
        self._process: subprocess.Popen[bytes] = spawn(command, folder / "log")
        self.pid = self._process.pid

    def passed(self) -> float:
        """Return the seconds since it was launched."""
        return time.monotonic() - self.launched

    def require_alive(self) -> None:
        """Do nothing while it runs.

        Raises:
            SideError: it has ended.
        """
        if self._process.poll() is not None:
            said = tail(self._folder / "log", 15)
            raise SideError(f"{self._side.name} ended with {self._process.returncode}; it said:\n{said}")

    def wait_ready(self, timeout: float) -> float:
        """Return the seconds from the launch until it was ready.

        Raises:
            SideError: it has ended, or was not ready after `timeout` seconds.
        """
        while not self._side.ready(self._folder):
            self.require_alive()
            if self.passed() > timeout:
                raise SideError(f"{self._side.name} is not ready after {timeout:g} s")
            time.sleep(0.05)
        return self.passed()

    def stop(self, patience: float = PATIENCE_S) -> float:
        """End it in order and return the seconds that this took; what is left after `patience` seconds is killed."""
        began, family = time.monotonic(), self._family()
        terminate(self._process, timeout_s=patience)
        took = time.monotonic() - began
        for process in psutil.wait_procs(family, timeout=min(patience, 10.0))[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        (self._folder / "ready").unlink(missing_ok=True)
        return took

    def _family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Who presses Ctrl-C does not wait for a batch to finish.
        self.stop(PATIENCE_S if kind is None or issubclass(kind, Exception) else 2.0)
