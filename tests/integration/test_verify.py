"""`tallystream verify` on a real broker, with the sums of a real aggregator, right ones and a wrong one."""

from __future__ import annotations

import json
import signal
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.aggregator import running_aggregator
from support.commands import run as run_command
from support.exactness import wait_all_committed
from support.fleet import Fleet, Journal
from support.kafka import end_offsets, latest_sums, read_topic
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]


@dataclass(frozen=True)
class Summed:
    """Topics that an aggregator has read to their end."""

    servers: str
    topics: Topics
    journal: Journal


@pytest.fixture(scope="module")
def summed(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Summed:
    """Two partitions of records, summed."""
    servers, folder = broker.bootstrap_servers, tmp_path_factory.mktemp("verify")
    topics = Topics(f"t{uuid.uuid4().hex[:8]}-")
    create_topics(AdminClient({"bootstrap.servers": servers}), topics, partitions=2)
    fleet = Fleet(servers, topics.metrics, seed=11)
    fleet.publish(200)
    with running_aggregator(servers, topics.prefix, folder) as process:
        wait_all_committed(servers, topics, end_offsets(servers, topics.metrics))
        fleet.publish(600)
        wait_all_committed(servers, topics, end_offsets(servers, topics.metrics))
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    return Summed(servers, topics, fleet.journal)


def _verify(summed: Summed, *options: str) -> subprocess.CompletedProcess[str]:
    common = ("--bootstrap-servers", summed.servers, "--topic-prefix", summed.topics.prefix)
    return run_command("verify", *common, *options)


def test_the_newest_sums_of_a_real_run_agree(summed: Summed) -> None:
    """All sums and all dead letters agree: exit code 0, and the comparison is complete."""
    verified = _verify(summed, "--json")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    report = json.loads(verified.stdout)
    assert report["agree"]
    assert report["differences"] == []
    # Clock records may have come between the others and after them.
    published = len(summed.journal.valid.keys() | summed.journal.malformed)
    assert published <= report["records"] <= len(read_topic(summed.servers, summed.topics.metrics))
    assert report["sums"] == len(latest_sums(summed.servers, summed.topics.agg)) == 8
    assert report["letters"] >= len(summed.journal.malformed) > 0


def test_a_changed_sum_is_the_only_difference(summed: Summed, tmp_path: Path) -> None:
    """If a count is one too high in the next record of its key, the exit code is 1, and the table has one row."""
    (key, value) = next(
        (read.key, json.loads(read.value or b""))
        for read in reversed(read_topic(summed.servers, summed.topics.agg))
        if b"records.processed" in (read.key or b"")
    )
    value["count"] += 1
    producer = Producer({"bootstrap.servers": summed.servers})
    producer.produce(summed.topics.agg, key=key, value=json.dumps(value).encode())
    assert producer.flush(30) == 0
    verified = _verify(summed)
    assert verified.returncode == 1, verified.stdout + verified.stderr
    rows = [line for line in verified.stdout.splitlines() if "records.processed" in line]
    assert len(rows) == 1
    assert all(word in rows[0] for word in ("orders", "count", str(value["count"]), str(value["count"] - 1)))
    assert "1 difference" in verified.stdout


def test_a_topic_without_its_first_records_can_not_be_verified(summed: Summed) -> None:
    """The error has the first offsets that are left; exit code 2."""
    admin = AdminClient({"bootstrap.servers": summed.servers})
    for future in admin.delete_records([TopicPartition(summed.topics.metrics, 1, 10)]).values():
        future.result()
    verified = _verify(summed)
    assert verified.returncode == 2, verified.stdout + verified.stderr
    (error,) = verified.stderr.strip().splitlines()
    assert "deleted" in error
    assert f"'{summed.topics.metrics}:1': 10" in error
