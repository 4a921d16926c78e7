"""The aggregator on a real broker: its sums against the oracle, through a stop, a kill -9 and a broken start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.application import Application, assert_exact
from support.kafka import Read, aggregator, latest_sums, read_topic, run
from support.wait import wait_until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration


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
        wanted = assert_exact(broker, topics)
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
    refused = run("aggregate", *arguments, "--checkpoint", str(tmp_path / "checkpoint"))
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
        wanted = assert_exact(broker, topics)
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
        assert_exact(broker, topics)
