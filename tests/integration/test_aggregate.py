"""The aggregator on a real broker: its sums against the oracle, through a stop, a kill -9 and a broken start."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from support.kafka import Read, aggregator, command, committed, latest_sums, read_topic
from support.oracle import expected
from support.wait import wait_until
from tallystream.aggregator.topics import Topics, create_topics
from tallystream.reporter import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient

    from tallystream.compose.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration

LIFE_CHARACTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Application:
    """Many instances of one application, seeded: publishes snapshots, duplicates, old ones again, restarts, poison."""

    def __init__(self, bootstrap_servers: str, topic: str, seed: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
        self._topic = topic
        self._random = random.Random(seed)
        self._counts = dict.fromkeys(range(20), 0)
        self._lives = {instance: self._life() for instance in self._counts}
        self._seqs = dict.fromkeys(self._counts, 0)
        self.poison = 0

    def publish(self, records: int) -> None:
        """Publish about that many records and return when the broker has them."""
        for _ in range(records):
            for key, value in self._step():
                self._producer.produce(self._topic, key=key, value=value)
        assert self._producer.flush(60) == 0

    def _step(self) -> Iterator[tuple[bytes, bytes | None]]:
        chance, instance = self._random.random(), self._random.randrange(len(self._counts))
        key = f"orders-{instance}".encode()
        if chance < 0.02:
            self.poison += 1
            yield key, self._random.choice([b"{", b"\xff\xfe", b"[]", b'{"v":2}', b'{"name":"x","value":-1}'])
            return
        if chance < 0.03:
            yield key, None
            return
        if chance < 0.06:  # a restart under the same instance ID
            self._lives[instance], self._seqs[instance], self._counts[instance] = self._life(), 0, 0
        self._counts[instance] += self._random.randrange(1000)
        self._seqs[instance] += 1
        value = self._snapshot(instance)
        yield key, value
        if chance > 0.9:  # sent twice
            yield key, value

    def _snapshot(self, instance: int) -> bytes:
        count = self._counts[instance]
        metrics: list[record.Metric] = [
            record.Counter(name="records.processed", tags={"topic": "orders"}, count=count),
            record.Gauge(name="queue", value=instance + 0.5),
            record.Meter(name="calls", count=count, m1_rate=2.0),
            record.Histogram(name="size", count=count, sum=float(count), min=0.0, max=float(instance)),
        ]
        return record.encode(
            record.Snapshot(
                app="orders",
                life=self._lives[instance],
                part=0,
                seq=self._seqs[instance],
                ts=0,
                every_ms=3_600_000,
                final=False,
                metrics=metrics,
            )
        )

    def _life(self) -> str:
        now_ms = int(time.time() * 1000)  # a life that began long ago would come too late
        head = "".join(LIFE_CHARACTERS[now_ms >> shift & 31] for shift in range(45, -1, -5))
        return head + "".join(self._random.choices(LIFE_CHARACTERS, k=16))


@pytest.fixture
def topics(admin: AdminClient, topic_prefix: str) -> Topics:
    """The six topics of this test alone."""
    made = Topics(topic_prefix)
    create_topics(admin, made)
    return made


def _assert_exact(broker: KafkaBroker, topics: Topics) -> dict[Any, Any]:
    """Wait until the group is at the end of `metrics`, then compare every field of every sum with the oracle's."""
    records = read_topic(broker.bootstrap_servers, topics.metrics)
    end = len(records)
    group = topics.prefix + "tallystream-aggregator"

    def finished() -> bool:
        return committed(broker.bootstrap_servers, group, topics.metrics) >= end

    wait_until(finished, 300, f"the batch with offset {end - 1} is finished")
    found = latest_sums(broker.bootstrap_servers, topics.agg)
    wanted = expected(records)
    assert {key: _fields(row, wanted[key]) for key, row in found.items()} == wanted
    return wanted


def _fields(row: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in wanted}


def test_sums_are_exact_through_kills_of_the_aggregator(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """Killed with SIGKILL in the middle, twice, and started again, its sums equal the oracle's to the integer.

    Every piece of poison is a dead letter, and the group's committed offset is the end of the topic.
    """
    application = Application(broker.bootstrap_servers, topics.metrics, seed=7)
    application.publish(500)
    for _ in range(2):
        with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path) as process:
            application.publish(700)
            process.kill()
            process.wait(60)
    application.publish(300)
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path) as process:
        application.publish(300)
        wanted = _assert_exact(broker, topics)
        assert wanted
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    dead = {json.loads(read.value or b"")["offset"] for read in read_topic(broker.bootstrap_servers, topics.dead)}
    assert len(dead) == application.poison
    _assert_ledger_is_whole(broker, topics, len(read_topic(broker.bootstrap_servers, topics.metrics)))


def _assert_ledger_is_whole(broker: KafkaBroker, topics: Topics, end: int) -> None:
    """The ledger's batches follow one another from the first offset to the last, in spite of the kills."""
    rows = [json.loads(read.value or b"") for read in read_topic(broker.bootstrap_servers, topics.ledger)]
    batches = {row["batch"]: row for row in rows if row["kind"] == "batch"}
    at = 0
    for number in sorted(batches):
        row = batches[number]
        begin = row["start"][topics.metrics]["0"] if row.get("start") else 0
        assert begin == at
        at = row["end"][topics.metrics]["0"]
    assert at == end
    epochs = [row["epoch"] for row in rows if row["kind"] == "opened"]
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 3


def test_a_new_checkpoint_in_the_middle_of_the_topic_is_refused(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """Where the first records are gone, a new table would be wrong: one sentence and exit code 2, unless accepted."""
    from confluent_kafka import TopicPartition

    Application(broker.bootstrap_servers, topics.metrics, seed=1).publish(20)
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, 10)]).values():
        future.result()
    arguments = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    refused = subprocess.run(
        command("aggregate", *arguments, "--checkpoint", str(tmp_path / "checkpoint")),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert refused.returncode == 2, refused.stderr
    assert "--accept-partial" in refused.stderr.strip().splitlines()[-1]
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, "--accept-partial"):
        pass
    rows = [json.loads(read.value or b"") for read in read_topic(broker.bootstrap_servers, topics.ledger)]
    assert [row.get("partial") for row in rows if row["kind"] == "opened"] == [True]


class _Instance:
    """A process that embeds the reporter, as an application does (support/embedding.py)."""

    def __init__(self, broker: KafkaBroker, topic: str, instance: str, folder: Path) -> None:
        script = Path(__file__).parent.parent / "support" / "embedding.py"
        self.journal = folder / f"{instance}.journal"
        self.process = subprocess.Popen(
            [sys.executable, str(script), broker.bootstrap_servers, topic, instance, str(self.journal)]
        )

    def acknowledged(self) -> int:
        """The increments that the broker acknowledged, over all processes of this instance ID."""
        if not self.journal.exists():
            return 0
        lives: dict[str, int] = {}
        for line in self.journal.read_text().splitlines():
            process, count = line.split()
            lives[process] = int(count)
        return sum(lives.values())


def test_an_application_restarted_and_killed_loses_no_acknowledged_increment(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """One instance stops and starts again, one is killed with SIGKILL and started again, under the same IDs.

    The sum equals the oracle's, holds every increment that the journals say was acknowledged, and never dips.
    """
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
        ids = ("orders-1", "orders-2")
        running = {name: _Instance(broker, topics.metrics, name, tmp_path) for name in ids}
        try:
            for name, how in (("orders-1", signal.SIGTERM), ("orders-2", signal.SIGKILL)):
                before = running[name].acknowledged()
                wait_until(lambda: running[name].acknowledged() > before + 50, 60, f"{name} counts on")  # noqa: B023
                running[name].process.send_signal(how)
                assert running[name].process.wait(30) == (0 if how == signal.SIGTERM else -signal.SIGKILL)
                running[name] = _Instance(broker, topics.metrics, name, tmp_path)
                after = running[name].acknowledged()
                wait_until(lambda: running[name].acknowledged() > after + 50, 60, f"{name} is back")  # noqa: B023
        finally:
            for instance in running.values():
                instance.process.terminate()
                assert instance.process.wait(30) == 0
        wanted = _assert_exact(broker, topics)
    total = wanted["orders", "records.processed", "counter", ()]["count"]
    acknowledged = sum(instance.acknowledged() for instance in running.values())
    assert total >= acknowledged > 200
    counts = [row["count"] for row in _sums_in_order(read_topic(broker.bootstrap_servers, topics.agg))]
    assert counts == sorted(counts)


def _sums_in_order(records: list[Read]) -> list[dict[str, Any]]:
    rows = [json.loads(read.value or b"") for read in records]
    return [row for row in rows if row["name"] == "records.processed"]


def test_lives_that_ended_while_no_aggregator_ran_are_noticed_after_a_start(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """An application is killed while the aggregator is down: after the start the sum says that it has no lives."""
    instance = None
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
        instance = _Instance(broker, topics.metrics, "orders-1", tmp_path)

        def living() -> list[int]:
            found = latest_sums(broker.bootstrap_servers, topics.agg)
            return [row.lives for key, row in found.items() if key[1] == "records.processed"]

        wait_until(lambda: living() == [1], 120, "the instance is seen")
    instance.process.kill()
    instance.process.wait(30)
    assert living() == [1]
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
        wait_until(lambda: living() == [0], 120, "its silence is noticed")
        _assert_exact(broker, topics)
