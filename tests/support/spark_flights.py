"""The job of the guide on a topic of a test, and what is known of its lag and its sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import NewTopic

from support import guides
from support.examples import EXAMPLES, System
from support.spark_jobs import SparkJob, consumer_groups_tool

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

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
