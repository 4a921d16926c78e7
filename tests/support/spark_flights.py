"""The job of the guide on a topic of a test, and what is known of its lag and its sums."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from support import guides
from support.kafka import committed
from support.spark_jobs import SparkJob, consumer_groups_tool
from support.topic_sums import topic_sums
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator import sums

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PARTITIONS = 3
BUILDER = "SparkSession.builder"
START = ".start()"
LINE = 'monitor(spark, app="scoring")'


class Flights:
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
        self.servers, self.topics, self.folder = servers, Topics(prefix), folder
        self.input = prefix + "flights"
        create_topics(admin, self.topics)
        made = admin.create_topics([NewTopic(self.input, PARTITIONS, 1), NewTopic(self.input + "-scored", 1, 1)])
        for future in made.values():
            future.result(timeout=30)
        self.producer = Producer({"bootstrap.servers": servers})
        self.produced = [0] * PARTITIONS
        self.group = prefix + "spark-scoring-scores"
        self.environment = {
            "TALLYSTREAM_TOPIC_PREFIX": prefix,
            "TALLYSTREAM_BOOTSTRAP_SERVERS": servers,
            "TALLYSTREAM_INSTANCE": "driver",
        }
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

    def produce(self, records: int, *, to: int | None = None) -> None:
        """Produce records, to all partitions or to one."""
        for number in range(records):
            partition = number % PARTITIONS if to is None else to
            self.producer.produce(self.input, f"flight {number}", partition=partition)
            self.produced[partition] += 1
        assert self.producer.flush(60) == 0

    def committed(self) -> list[int]:
        """Return the committed offset of each partition, 0 if it has none."""
        try:
            return [max(committed(self.servers, self.group, self.input, number), 0) for number in range(PARTITIONS)]
        except KafkaException:  # the broker is creating the topic of offsets
            return []

    def tool(self) -> dict[int, int]:
        """Return the lag of each partition by Kafka's own tool."""
        return {partition: lag for (_, partition), lag in consumer_groups_tool(self.servers, self.group).items()}

    def sums(self) -> dict[str, list[sums.Sum]]:
        """Return the sums of the topic `metrics` by name."""
        return topic_sums(self.servers, self.topics.metrics)

    def count(self, name: str) -> int:
        """Return the sum of a counter over all tags."""
        return sum(row.count or 0 for row in self.sums().get(name, []))

    def positions(self) -> list[tuple[int, int]]:
        """Return the start and the position of each partition."""
        rows = sorted(self.sums().get("spark.records.position", []), key=lambda row: row.tags["partition"])
        return [(row.start or 0, row.position or 0) for row in rows]
