"""`tallystream.spark.monitor` in a real job that is killed, beside Kafka's own tool and `tallystream lag`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from support import commands as tallystream
from support import guides
from support.kafka import committed, read_topic
from support.spark_jobs import SparkJob, consumer_groups_tool
from support.wait import wait_until
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.table import Record, State, Table

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PARTITIONS = 3
GROUP = "spark-scoring-scores"


class Flights:
    """The input topic, the job of the guide, and what is known of its lag and its sums."""

    def __init__(self, servers: str, admin: AdminClient, prefix: str, folder: Path, version: str | None) -> None:
        self.servers, self.topics, self.folder = servers, Topics(prefix), folder
        self.input = prefix + "flights"
        create_topics(admin, self.topics)
        made = admin.create_topics([NewTopic(self.input, PARTITIONS, 1), NewTopic(self.input + "-scored", 1, 1)])
        for future in made.values():
            future.result(timeout=30)
        self.producer = Producer({"bootstrap.servers": servers})
        self.produced = [0] * PARTITIONS
        self.group = prefix + GROUP
        self.environment = {
            "TALLYSTREAM_TOPIC_PREFIX": prefix,
            "TALLYSTREAM_BOOTSTRAP_SERVERS": servers,
            "TALLYSTREAM_INSTANCE": "driver",
        }
        self.version = version

    def job(self, script: Path | None = None) -> SparkJob:
        """Return the job of the guide's command, with this test's topic, group and brokers."""
        (command,) = [words for words in guides.commands("spark") if words[0] == "spark-submit"]
        own = {
            "docs/examples/spark_job.py": str(script or self.script()),
            "localhost:9092": self.servers,
            "flights": self.input,
            "checkpoint": str(self.folder / "checkpoint"),
        }
        words = [own.get(word, word) for word in command]
        return SparkJob(words, self.folder / "job", self.environment, self.version)

    def script(self) -> Path:
        """Return a copy of the example whose group has the prefix of this test."""
        text = (EXAMPLES / "spark_job.py").read_text()
        line = 'monitor(spark, app="scoring")'
        assert text.count(line) == 1
        path = self.folder / "spark_job.py"
        path.write_text(text.replace(line, f'monitor(spark, app="scoring", group={self.group!r})'))
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
        table = Table(State())
        table.apply(
            Record(self.topics.metrics, read.partition, read.offset, read.timestamp_ms, read.key, read.value)
            for read in read_topic(self.servers, self.topics.metrics)
        )
        changes = table.changes()
        assert changes.dead == []
        found: dict[str, list[sums.Sum]] = {}
        for total in changes.totals:
            row = sums.decode(total.value(epoch=1, batch=1))
            found.setdefault(row.name, []).append(row)
        return found

    def count(self, name: str) -> int:
        """Return the sum of a counter over all tags."""
        return sum(row.count or 0 for row in self.sums().get(name, []))

    def positions(self) -> list[tuple[int, int]]:
        """Return the start and the position of each partition."""
        rows = sorted(self.sums().get("spark.records.position", []), key=lambda row: row.tags["partition"])
        return [(row.start or 0, row.position or 0) for row in rows]

    def scored(self) -> int:
        """Return how many records the job has written."""
        return len(read_topic(self.servers, self.input + "-scored"))


def flights(broker: KafkaBroker, admin: AdminClient, prefix: str, folder: Path, version: str | None = None) -> Flights:
    return Flights(broker.bootstrap_servers, admin, prefix, folder, version)


class LagCollector:
    """`tallystream lag collect`, and `tallystream lag` with its store."""

    def __init__(self, flights: Flights, folder: Path) -> None:
        self._flights, self._store = flights, f"local:{folder / 'store.db'}"
        self.log = folder / "collector.log"
        self.arguments = ["lag", "collect", "--bootstrap-servers", flights.servers, "--store", self._store]
        self.arguments += ["--interval", "1", "--include", flights.group]

    def lag(self) -> dict[int, int]:
        """Return the lag of each partition by `tallystream lag`."""
        done = tallystream.run("lag", self._flights.group, "--json", "--store", self._store)
        groups: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
        return {one["partition"]: one["lag"] for group in groups for one in group["partitions"]}


def test_lag_and_counts_of_a_job_that_is_killed(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """Kafka's tool and `tallystream lag` show the same lag after each batch, and after kill -9 and a restart.

    The positions cover each record once. The counters count the batch that the killed driver did not report.
    """
    flights_ = flights(broker, admin, topic_prefix, tmp_path)
    collector = LagCollector(flights_, tmp_path)
    job = flights_.job()

    def shows(lag: list[int]) -> bool:
        return collector.lag() == flights_.tool() == dict(enumerate(lag))

    with tallystream.running(collector.log, *collector.arguments):
        try:
            flights_.produce(300)
            job.start()
            for _ in range(3):
                wait_until(
                    lambda: job.ended or flights_.committed() == flights_.produced, 300, "the batch is committed"
                )
                assert not job.ended, job.log.read_text()
                wait_until(lambda: shows([0] * PARTITIONS), 60, "both show no lag")
                flights_.produce(30)
            wait_until(lambda: flights_.committed() == flights_.produced, 60, "the batch is committed")
            job.kill()
            flights_.produce(7, to=1)
            wait_until(lambda: shows([0, 7, 0]), 60, "both show the lag of the killed job")
            job.start()
            wait_until(lambda: job.ended or flights_.committed() == flights_.produced, 300, "the rest is committed")
            assert not job.ended, job.log.read_text()
            wait_until(lambda: shows([0] * PARTITIONS), 60, "both show no lag")
        finally:
            job.kill()
    assert flights_.positions() == [(0, end) for end in flights_.produced]
    assert flights_.count("spark.records") == flights_.count("spark.rows") == sum(flights_.produced)
