"""The aggregator on a real standalone cluster: a master and two workers that share the checkpoint folder."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Self

import psutil
import pyspark
import pytest

from support.aggregator import Aggregator
from support.exactness import assert_as_acknowledged, assert_exact, assert_published_once
from support.faults import RECOVERY_S
from support.fleet import Fleet
from support.kafka import end_offsets
from support.processes import kill_tree
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import spawn

SPARK_HOME = Path(pyspark.__file__).parent
SECURE = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.io.encryption.enabled": "true",
    "spark.ui.enabled": "false",
}
"""A process needs a secret to join. Network traffic and spilled data are encrypted, as in deploy/kubernetes."""

WORKERS = 2
START_S = 180.0
"""Seconds before a wait fails. A busy machine is slow to start a JVM."""


class Cluster:
    """A master and two workers with one core each. The end of the block kills them and their executors.

    `env` is the environment that a driver needs on the cluster: loopback addresses, and executors that fit the workers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        defaults = {"spark.executor.memory": "512m", **SECURE, "spark.authenticate.secret": secrets.token_hex(16)}
        conf = folder / "spark-defaults.conf"
        conf.write_text("".join(f"{name} {value}\n" for name, value in defaults.items()), encoding="utf-8")
        self.env = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(folder), "SPARK_DAEMON_MEMORY": "256m"}

    def __enter__(self) -> Self:
        log = self.folder / "master.log"
        self._master = self._start("master.Master", log)
        self.url = self._wait_logged(log, r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            log, work = self.folder / f"worker-{number}.log", self.folder / f"work-{number}"
            size = ("--cores", "1", "--memory", "600m", "--work-dir", str(work))
            self.workers.append(self._start("worker.Worker", log, *size, self.url))
            self._wait_logged(log, r"(Successfully registered) with master")
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self._master):
            if process is not None and process.poll() is None:
                kill_tree(process)

    def kill_busy_worker(self) -> int:
        """Kill the worker whose executor runs the table, with all its processes; return its number."""
        busy: list[int] = []

        def found() -> bool:
            busy[:] = [n for n, worker in enumerate(self.workers) if worker.poll() is None and _runs_python(worker.pid)]
            return bool(busy)

        wait_until(found, START_S, "an executor runs the table")
        kill_tree(self.workers[busy[0]])
        return busy[0]

    def _start(self, name: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        launcher = str(SPARK_HOME / "bin" / "spark-class")
        command = [launcher, f"org.apache.spark.deploy.{name}", *where, *arguments]
        return spawn(command, log, self.env | {"SPARK_HOME": str(SPARK_HOME)})

    def _wait_logged(self, log: Path, pattern: str) -> str:
        def found() -> re.Match[str] | None:
            return re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))

        wait_until(found, START_S, f"{log.name} has {pattern!r}")
        match = found()
        assert match is not None
        return match[1]


def _runs_python(pid: int) -> bool:
    try:
        return any("python" in process.name() for process in psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return False


def submit(*options: str) -> list[str]:
    """Return the command line of this PySpark's spark-submit."""
    return [str(SPARK_HOME / "bin" / "spark-submit"), *options]


pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_killed_worker_loses_nothing_and_spark_submit_continues(
    broker: KafkaBroker, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGKILL of the worker with the table, its executor and its Python under load, sums stay exact.

    The driver continues, and the other worker loads the table from the shared checkpoint. Then the same job continues
    under spark-submit on that worker, as in docs/deploy.md: exact by the replay and the journal, and published once.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 40)
    fleet.publish(200)
    with Cluster(tmp_path / "cluster") as cluster:
        for name, value in cluster.env.items():
            monkeypatch.setenv(name, value)
        with Aggregator(
            broker.bootstrap_servers, topics.prefix, tmp_path, "--master", cluster.url, spark=True
        ) as aggregator:
            aggregator.start().wait_ready()
            with fleet.publishing():
                killed = cluster.kill_busy_worker()
                due = end_offsets(broker.bootstrap_servers, topics.metrics)
                seconds = aggregator.wait_committed(topics.metrics, due, RECOVERY_S, "the other worker continues")
            print(f"worker {killed} killed: offsets are committed again after {seconds:.1f} s")  # noqa: T201
            assert aggregator.restarts == 0, aggregator.output()
            assert_exact(broker, topics)
            assert aggregator.stop() == 0, aggregator.output()
        fleet.publish(100)
        script = tmp_path / "tally.py"
        script.write_text("from tallystream_cli.main import main\n\nmain()\n", encoding="utf-8")
        where = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix)
        done = subprocess.run(
            submit(
                *("--master", cluster.url, "--executor-memory", "512m", str(script)),
                *("aggregate", *where, "--checkpoint", str(aggregator.checkpoint), "--catch-up"),
            ),
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert_exact(broker, topics)
    assert_as_acknowledged(broker, topics, [fleet])
    assert_published_once(broker, topics)
