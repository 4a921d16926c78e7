"""The programs of docs/examples as real processes: their topics, how they are started, and the sums they reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.guides import ROOT
from support.kafka import committed, read_topic
from support.processes import end, exit_code
from support.steps import records_of, run
from tallystream.record import decode
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.table import State, Table
from tallystream_cli.servers.process import spawn

EXAMPLES = ROOT / "docs" / "examples"
PARTITIONS = 3


class System:
    """The topics under this test's own prefix, and the processes of the examples."""

    def __init__(self, servers: str, prefix: str, admin: AdminClient, folder: Path) -> None:
        self.servers, self.topics, self.folder = servers, Topics(prefix), folder
        self.input = prefix + "flights"
        self.group = self.input + "-processing"
        self.produced = [0] * PARTITIONS
        self.producer = Producer({"bootstrap.servers": servers})
        create_topics(admin, self.topics)
        admin.create_topics([NewTopic(self.input, PARTITIONS, 1)])[self.input].result(timeout=30)
        self.log = folder / "log"
        self.environment = {
            **os.environ,
            "PYTHONFAULTHANDLER": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "TALLYSTREAM_TOPIC_PREFIX": prefix,
            "TALLYSTREAM_BOOTSTRAP_SERVERS": servers,
            "TALLYSTREAM_INSTANCE": "host-1",
        }

    def produce(self, records: int, *, to: int | None = None) -> None:
        """Produce records to the input topic, to all partitions or to one."""
        for number in range(records):
            partition = number % PARTITIONS if to is None else to
            self.producer.produce(self.input, value=f"flight {number}", partition=partition)
            self.produced[partition] += 1
        assert self.producer.flush(60) == 0

    def start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a process. It is killed when this one ends."""
        return spawn([str(part) for part in command], self.log, self.environment)

    def run(self, *command: str | Path) -> None:
        """Run a process to its end."""
        assert exit_code(self.start(*command), self.log, 180) == 0, self.log.read_text()

    def counts(self, name: str, tag: str) -> dict[str, int]:
        """Return the sums of the counts of this name by the value of one tag."""
        found: dict[str, int] = {}
        for row in self.sums().get(name, []):
            found[row.tags[tag]] = found.get(row.tags[tag], 0) + (row.count or 0)
        return found

    def sums(self) -> dict[str, list[sums.Sum]]:
        """Return the sums of the topic `metrics` by name; no record may be malformed."""
        return topic_sums(self.servers, self.topics.metrics)

    def count(self, name: str) -> int:
        """Return the sum of all counts of this name over all tags."""
        return sum(row.count or 0 for row in self.sums().get(name, []))

    def covered(self, name: str) -> int:
        """Return how many offsets the positions of this name cover."""
        return sum((row.position or 0) - (row.start or 0) for row in self.sums().get(name, []))

    def lives(self) -> int:
        """Return how many lives have reported: one for each process."""
        return len({decode(read.value or b"").life for read in read_topic(self.servers, self.topics.metrics)})

    def committed(self) -> list[int]:
        """Return the offset that the group has committed in each partition of the input topic, 0 if it has none."""
        try:
            return [max(committed(self.servers, self.group, self.input, number), 0) for number in range(PARTITIONS)]
        except KafkaException:  # the broker is creating the topic of offsets
            return [0] * PARTITIONS

    def end(self, process: subprocess.Popen[bytes]) -> None:
        assert end(process, self.log, 60) == 0, self.log.read_text()


def topic_sums(servers: str, topic: str) -> dict[str, list[sums.Sum]]:
    """Return the sums by name over the instances that report to a topic like `metrics`; no record may be malformed."""
    changes = run(Table(State()), records_of(read_topic(servers, topic), topic))
    assert changes.dead == []
    found: dict[str, list[sums.Sum]] = {}
    for total in changes.totals:
        row = sums.decode(total.value())
        found.setdefault(row.name, []).append(row)
    return found
