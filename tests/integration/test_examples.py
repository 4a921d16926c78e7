"""Every example of docs/examples as a real process: the reported counts are exactly what was processed."""

from __future__ import annotations

import os
import signal
import socket
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from support.guides import ROOT, commands
from support.kafka import committed, read_topic
from support.wait import wait_until
from tallystream.record import Position, decode
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.table import Record, State, Table
from tallystream_cli.servers.process import free_port, spawn

if TYPE_CHECKING:
    import subprocess

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

EXAMPLES = ROOT / "docs" / "examples"
PARTITIONS = 3
RECORDS = 3000


class System:
    """The topics under this test's own prefix, and the processes of the examples."""

    def __init__(self, servers: str, prefix: str, admin: AdminClient, folder: Path) -> None:
        self.servers, self.topics, self.folder = servers, Topics(prefix), folder
        self.input = prefix + "flights"
        create_topics(admin, self.topics)
        admin.create_topics([NewTopic(self.input, PARTITIONS, 1)])[self.input].result(timeout=30)
        self.log = folder / "log"
        self.environment = {
            **os.environ,
            "TALLYSTREAM_TOPIC_PREFIX": prefix,
            "TALLYSTREAM_BOOTSTRAP_SERVERS": servers,
            "TALLYSTREAM_INSTANCE": "host-1",
        }

    def produce(self, records: int) -> None:
        """Produce records to all partitions of the input topic."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(records):
            producer.produce(self.input, value=f"flight {number}", partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    def start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a process. It is killed when this one ends."""
        return spawn([str(part) for part in command], self.log, self.environment)

    def sums(self) -> dict[str, list[sums.Sum]]:
        """Return the sums of the topic `metrics` by name; no record may be malformed."""
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
        """Return the sum of all counts of this name over all tags."""
        return sum(row.count or 0 for row in self.sums().get(name, []))

    def covered(self, name: str) -> int:
        """Return how many offsets the positions of this name cover."""
        return sum((row.position or 0) - (row.start or 0) for row in self.sums().get(name, []))

    def lives(self) -> int:
        """Return how many lives have reported: one for each process."""
        return len({decode(read.value or b"").life for read in read_topic(self.servers, self.topics.metrics)})

    def overlap(self, name: str) -> int:
        """Return how many offsets the last of three lives read again, computed from the positions of all three."""
        newest: dict[str, dict[str, Position]] = {}
        for read in read_topic(self.servers, self.topics.metrics):
            snapshot = decode(read.value or b"")
            found = [metric for metric in snapshot.metrics if isinstance(metric, Position) and metric.name == name]
            newest[snapshot.life] = {metric.tags["partition"]: metric for metric in found}
        first, killed, last = newest.values()
        # A partition for which neither reported a position was started by the last one.
        before = {number: killed.get(number) or first.get(number) for number in last}
        return sum(known.position - last[number].start for number, known in before.items() if known is not None)

    def committed(self) -> int:
        """Return how many offsets of the input topic its group has committed."""
        group = self.input + "-processing"
        offsets = [committed(self.servers, group, self.input, number) for number in range(PARTITIONS)]
        return sum(max(offset, 0) for offset in offsets)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End a process with SIGTERM."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, self.log.read_text()


@pytest.fixture
def system(broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path) -> System:
    return System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)


@pytest.mark.parametrize("words", commands("kafka-consumer"), ids=lambda words: Path(words[1]).stem)
def test_a_consumer_loop(system: System, words: list[str]) -> None:
    """After SIGTERM and after SIGKILL the counts are what was processed, and no record is missed.

    The count minus the covered offsets is what was processed twice: what the killed process had counted but not
    committed, so that the next one read it again.
    """
    example = str(ROOT / words[1])
    given = {"python": sys.executable, words[1]: example, "localhost:9092": system.servers, "flights": system.input}
    command = [given.get(word, word) for word in words]
    system.produce(RECORDS)
    process = system.start(*command)
    try:
        wait_until(lambda: system.count("flights.processed") > 0 or process.poll(), 180, "some are counted")
        system.end(process)
        counted = system.count("flights.processed")
        assert counted == system.covered("flights.processed.position") == system.committed()
        system.produce(3 * RECORDS)
        process = system.start(*command)
        wait_until(lambda: system.count("flights.processed") > counted, 180, "more are counted")
        process.kill()
        process.wait(60)
        process = system.start(*command)
        wait_until(lambda: system.lives() == 3 and system.committed() == 4 * RECORDS, 180, "all are committed")
        system.end(process)
    finally:
        process.kill()
        process.wait()
    assert system.count("flights.processed") - 4 * RECORDS == system.overlap("flights.processed.position")
    assert system.covered("flights.processed.position") == 4 * RECORDS


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes(system: System, method: str) -> None:
    """Two thousand short tasks in four children that exit before a report is due: each task is counted."""
    system.environment["TALLYSTREAM_INTERVAL"] = "3600"
    process = system.start(sys.executable, EXAMPLES / "process_pool.py", system.servers, "2000", method)
    assert process.wait(120) == 0, system.log.read_text()
    assert str(sum(number * number for number in range(2000))) in system.log.read_text()
    assert system.count("tasks.done") == 2000
    assert system.lives() == 4


def listens(port: int) -> bool:
    """Return whether a server accepts connections; requests wait until a worker is ready."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_flask_under_several_workers(system: System) -> None:
    """With three forked workers of one instance ID, one of them killed and replaced, every response is counted."""
    port = free_port()
    gunicorn = Path(sys.executable).with_name("gunicorn")
    options = ["--chdir", EXAMPLES, "--workers", "3", "--preload", "--bind", f"127.0.0.1:{port}"]
    process = system.start(gunicorn, *options, "flask_app:app")

    def order(items: int) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/orders/{items}", method="POST")
        with urllib.request.urlopen(request, timeout=120) as response:
            return int(response.status)

    try:
        wait_until(lambda: listens(port), 180, "gunicorn listens")
        assert order(0) == 200
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(order, range(200))) == {200}
            wait_until(lambda: system.count("http.server.requests") == 201, 120, "all are reported")
            workers = psutil.Process(process.pid).children()
            workers[0].kill()
            wait_until(lambda: new_worker(process.pid, workers), 120, "another worker runs")
            assert set(pool.map(order, range(200, 400))) == {200}
        system.end(process)
    finally:
        process.kill()
        process.wait()
    assert system.count("orders.placed") == sum(range(400))
    assert system.count("http.server.requests") == system.count("http.server.duration") == 401
    records = read_topic(system.servers, system.topics.metrics)
    assert {record.key for record in records} == {b"host-1"}
    assert system.lives() == 5  # the parent, three workers, and the replacement of the killed one


def new_worker(master: int, workers: list[psutil.Process]) -> bool:
    """Return whether gunicorn has replaced the first worker."""
    now = psutil.Process(master).children()
    return len(now) == len(workers) and workers[0] not in now
