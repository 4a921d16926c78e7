"""The systems that are compared: how each is built and started, where it writes its sums, and when it is ready."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol, Self

import psutil

from tallystream_aggregator import java
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.process import spawn, tail, terminate

OURS, PEER, PEER_LINGER_0 = "ours", "kstreams", "kstreams-linger0"
"""Names in --sides. `kstreams` has exactly_once_v2, `kstreams-linger0` has at_least_once and linger 0."""
ALL = (OURS, PEER, PEER_LINGER_0)
COMMAND = str(Path(sys.executable).with_name("tallystream"))
MAX_STOP_S = 60.0
LINGER_0 = "kafka-streams, at_least_once, linger 0"
HEAP = "1g"
"""The maximum heap of each JVM: the default of `tallystream aggregate`."""
KSTREAMS = Path(__file__).with_name("kstreams")
"""The sources of the Kafka Streams application."""
KSTREAMS_OUT = Path(__file__).parents[2] / ".build" / "bench-aggregator" / "kstreams"


class SideError(Exception):
    """A side ended or did not start. The message includes its last output."""


class BuildError(Exception):
    """The Kafka Streams application can't be built. The message says what is missing, or has the output of Maven."""


class Side(Protocol):
    """A system that is measured."""

    @property
    def name(self) -> str:
        """Its name in the tables."""

    def output(self, prefix: str) -> str:
        """Return the topic of the sums."""

    def command(self, bootstrap_servers: str, prefix: str, folder: Path) -> list[str]:
        """Return its command line. Its state goes into `folder`, its output into the file `log` there."""

    def ready(self, folder: Path) -> bool:
        """Return whether it processes records."""


@dataclass(frozen=True)
class Ours:
    """`tallystream aggregate` with its defaults and `options`."""

    options: tuple[str, ...] = ()
    name: str = "tallystream"

    def with_options(self, *options: str) -> Self:
        """Return this side with further options."""
        return replace(self, options=(*self.options, *options))

    def with_latency(self, latency: str) -> Self:
        """Return this side with this `--latency`, unless its options have one."""
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
        """Return whether its loops have begun."""
        return (folder / "ready").exists()


@dataclass(frozen=True)
class KafkaStreams:
    """The same sums in Kafka Streams. `options` are settings of Kafka Streams as KEY=VALUE."""

    mode: str = "eos"
    options: tuple[str, ...] = ()
    name: str = "kafka-streams"

    def output(self, prefix: str) -> str:
        """Return the topic of the sums."""
        return Topics(prefix).agg

    def command(self, bootstrap_servers: str, prefix: str, folder: Path) -> list[str]:
        """Return its command line. Build the application first if its sources have changed.

        Raises:
            BuildError: it can't be built.
        """
        topics = Topics(prefix)
        return [
            *(java.launcher(), f"-Xmx{HEAP}", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            *("-cp", os.pathsep.join(kstreams_classpath()), "bench.KStreamsAggregator"),
            *(self.mode, topics.metrics, topics.agg, f"bootstrap.servers={bootstrap_servers}"),
            *(f"application.id={prefix}kstreams", f"state.dir={folder / 'state'}", *self.options),
        ]

    def ready(self, folder: Path) -> bool:
        """Return whether its log has the state RUNNING."""
        log = folder / "log"
        return log.exists() and "STATE RUNNING" in log.read_text(encoding="utf-8", errors="replace")


@cache
def kstreams_classpath() -> tuple[str, ...]:
    """Return the class path of the Kafka Streams application, which Maven builds if its sources have changed.

    Raises:
        BuildError: Maven is missing, or it failed.
    """
    built, digest = KSTREAMS_OUT / "built", _digest()
    if not built.exists() or built.read_text(encoding="utf-8") != digest:
        _build()
        built.write_text(digest, encoding="utf-8")
    return (str(KSTREAMS_OUT / "app" / "classes"), *sorted(str(path) for path in (KSTREAMS_OUT / "lib").glob("*.jar")))


def _digest() -> str:
    files = sorted(path for path in KSTREAMS.rglob("*") if path.suffix in (".java", ".xml"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _build() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BuildError("mvn: Maven is not on the PATH: install it, or measure only our side with --sides ours")
    print("bench: building the Kafka Streams application", file=sys.stderr)
    shutil.rmtree(KSTREAMS_OUT, ignore_errors=True)
    KSTREAMS_OUT.mkdir(parents=True)
    command = [
        *(maven, "-B", "-q", "-f", str(KSTREAMS / "pom.xml"), f"-Dbench.out={KSTREAMS_OUT}", "package"),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={KSTREAMS_OUT / 'lib'}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    if done.returncode:
        raise BuildError(f"mvn: it failed with {done.returncode}:\n{(done.stdout + done.stderr).strip()[-2000:]}")


class Running:
    """A side that was launched. The end of the block stops it and all processes that it started."""

    def __init__(self, side: Side, bootstrap_servers: str, prefix: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = side.command(bootstrap_servers, prefix, folder)
        self._side, self._folder = side, folder
        self.launched = time.monotonic()
        self._process: subprocess.Popen[bytes] = spawn(command, folder / "log")
        self.pid = self._process.pid

    def passed(self) -> float:
        """Return the seconds since the launch."""
        return time.monotonic() - self.launched

    def require_alive(self) -> None:
        """Do nothing while it runs.

        Raises:
            SideError: it has ended.
        """
        if self._process.poll() is not None:
            output = tail(self._folder / "log", 15)
            raise SideError(f"{self._side.name} ended with {self._process.returncode}; its last output:\n{output}")

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

    def stop(self, timeout: float = MAX_STOP_S) -> float:
        """Stop it and return the seconds that this took. Kill the processes that still run after `timeout` seconds."""
        began, children = time.monotonic(), self._children()
        terminate(self._process, timeout_s=timeout)
        took = time.monotonic() - began
        for process in psutil.wait_procs(children, timeout=min(timeout, 10.0))[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        (self._folder / "ready").unlink(missing_ok=True)
        return took

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After Ctrl-C, do not wait for an orderly end.
        self.stop(MAX_STOP_S if kind is None or issubclass(kind, Exception) else 2.0)
