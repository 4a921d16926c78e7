"""The job of the guide on Spark, with several versions of PySpark, and what is known of its lag and its sums."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from support import guides
from support.examples import EXAMPLES, System
from support.processes import kill_tree
from tallystream_aggregator import java
from tallystream_cli.servers import jars
from tallystream_cli.servers.process import spawn

REPORTER = Path(__file__).parents[2] / "reporter"
CONNECTORS = {"4.0.5": "4.0.0", "4.1.4": "4.1.1", "4.2.1": "4.2.0", "4.3.0": "4.2.0"}
"""The versions of PySpark, each with a version of Kafka's connector that Maven Central has."""

DEFAULTS = """
spark.master local[2]
spark.ui.enabled false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.jars.ivy {ivy}
"""


def environment_of(version: str | None) -> Path:
    """Return the Python of an environment with a version of PySpark and of Spark Connect; None: this one.

    It is created on first use, in the cache of downloads.
    """
    if version is None:
        return Path(sys.executable)
    folder = jars.cache_dir() / "pyspark" / version
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        uv = Path(sys.executable).with_name("uv")
        wanted = [f"pyspark[connect]=={version}", "confluent-kafka>=2.16", "msgspec>=0.22", "setuptools<81"]
        subprocess.run([uv, "venv", "--clear", "-q", "--python", sys.executable, folder], check=True, timeout=60)
        install: list[str | Path] = [uv, "pip", "install", "-q", "--python", python, *wanted]
        subprocess.run(install, check=True, timeout=1800)
        complete.touch()
    return python


class SparkJob:
    """A job that `spark-submit` starts, as a user does.

    Args:
        command: the command, which begins with spark-submit.
        folder: where the job's configuration and its log are; also its working directory.
        environment: added to this process's environment.
        version: of PySpark, with the connector of that version; None: that of this environment.
        connect: whether Python starts the script, which itself starts a server of Spark Connect.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        version: str | None = None,
        *,
        connect: bool = False,
    ) -> None:
        python = environment_of(version)
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "spark.log"
        words = [word.replace(":4.2.0", f":{CONNECTORS[version]}") if version else word for word in command]
        defaults = DEFAULTS.format(ivy=jars.cache_dir() / "ivy")
        if connect:
            _, _, packages, *script = words
            defaults += f"spark.jars.packages {packages}\n"
            words = ["python", *script]
        (folder / "spark-defaults.conf").write_text(defaults)
        self._command = [str(python.with_name(words[0])), *words[1:]]
        self._environment: dict[str, str | None] = {
            **environment,
            "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
            "PYTHONPATH": str(REPORTER),
            "SPARK_CONF_DIR": str(folder),
            "PYSPARK_PYTHON": str(python),
            "SPARK_HOME": None,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = spawn(self._command, self.log, self._environment)

    def kill(self) -> None:
        """Kill the driver, its JVM and its Python, with SIGKILL."""
        if self._process is not None:
            kill_tree(self._process)

    def wait(self, timeout: float) -> int:
        """Wait until the driver has ended, and return its exit code."""
        assert self._process is not None
        return self._process.wait(timeout)

    @property
    def ended(self) -> bool:
        """Whether the driver has ended by itself."""
        return self._process is not None and self._process.poll() is not None


def consumer_groups_tool(servers: str, group: str) -> dict[tuple[str, int], int]:
    """Return the lag of each topic and partition, as Kafka's kafka-consumer-groups.sh prints it."""
    classpath = os.pathsep.join(str(path) for of in ("tools", "broker") for path in jars.fetch(of))
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    arguments = ["--bootstrap-server", servers, "--describe", "--group", group]
    done = subprocess.run(
        [java.launcher(), "-cp", classpath, main, *arguments], capture_output=True, text=True, check=True, timeout=120
    )
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(group + " ")]
    return {(row[1], int(row[2])): int(row[5]) for row in rows}


BUILDER = "SparkSession.builder"
START = ".start()"
LINE = 'monitor(spark, app="scoring")'


class Flights(System):
    """The input topic, the job of the guide, and what is known of its lag and its sums."""

    def __init__(
        self,
        servers: str,
        admin: AdminClient,
        prefix: str,
        folder: Path,
        version: str | None = None,
        *,
        connect: bool = False,
    ) -> None:
        super().__init__(servers, prefix, admin, folder)
        scored = self.input + "-scored"
        admin.create_topics([NewTopic(scored, 1, 1)])[scored].result(timeout=30)
        self.group = prefix + "spark-scoring-scores"
        self._version, self._connect = version, connect

    def job(self, *, ends: bool = False) -> SparkJob:
        """Return the job of the guide's command, with this test's topic, group and brokers.

        If it `ends`, it reads what there is.
        """
        (command,) = [words for words in guides.commands("spark") if words[0] == "spark-submit"]
        own = {
            "docs/examples/spark_job.py": str(self.script(ends=ends)),
            "localhost:9092": self.servers,
            "flights": self.input,
            "checkpoint": str(self.folder / "checkpoint"),
        }
        words = [own.get(word, word) for word in command]
        return SparkJob(words, self.folder / "job", self.environment, self._version, connect=self._connect)

    def script(self, *, ends: bool) -> Path:
        """Return a copy of the example whose group has the prefix of this test."""
        text = (EXAMPLES / "spark_job.py").read_text()
        assert text.count(LINE) == text.count(BUILDER) == text.count(START) == 1
        if ends:
            text = text.replace(START, ".trigger(availableNow=True)" + START)
        if self._connect:
            text = text.replace(BUILDER, BUILDER + '.remote("local[2]")')
        path = self.folder / ("spark_job_ends.py" if ends else "spark_job.py")
        path.write_text(text.replace(LINE, f'monitor(spark, app="scoring", group={self.group!r})'))
        return path

    def tool(self) -> dict[int, int]:
        """Return the lag of each partition by Kafka's own tool."""
        return {partition: lag for (_, partition), lag in consumer_groups_tool(self.servers, self.group).items()}

    def positions(self) -> list[tuple[int, int]]:
        """Return the start and the position of each partition."""
        rows = sorted(self.sums().get("spark.records.position", []), key=lambda row: row.tags["partition"])
        return [(row.start or 0, row.position or 0) for row in rows]
