"""The aggregator on a topic whose first records are deleted, and what verify says about its sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.aggregator import running_aggregator
from support.commands import run
from support.exactness import wait_all_committed
from support.fleet import NAME, Fleet
from support.kafka import end_offsets, read_topic
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_table_that_begins_in_the_middle_of_the_topic_is_verified(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """A new checkpoint on a topic without its first records is refused with code 2, unless an option accepts that.

    The ledger says where the table began, and where its epochs ended. Verify replays from there, and agrees. A count
    that is one too high is its only difference, with
    code 1. When records that the table has read are deleted, too, it is an error with the first offsets that are left.
    """
    servers = broker.bootstrap_servers

    def delete_before(offset: int) -> None:
        for future in admin.delete_records([TopicPartition(topics.metrics, 0, offset)]).values():
            future.result()

    Fleet(servers, topics.metrics, seed=1).publish(60)
    delete_before(10)
    arguments = ("--bootstrap-servers", servers, "--topic-prefix", topic_prefix)
    refused = run("aggregate", *arguments, "--checkpoint", str(tmp_path / "checkpoint"))
    assert refused.returncode == 2, refused.stderr
    assert "--from earliest" in refused.stderr.strip().splitlines()[-1]

    def rows() -> list[Any]:
        return [json.loads(record.value or b"") for record in read_topic(servers, topics.ledger)]

    def recorded() -> int:
        end: dict[str, dict[str, int]] = rows()[-1].get("end", {})
        return end.get(topics.metrics, {}).get("0", 0)

    with running_aggregator(servers, topic_prefix, tmp_path, "--from", "earliest", "--epoch", "1"):
        wait_all_committed(servers, topics, end_offsets(servers, topics.metrics))
        # Not after its end: on a busy machine the last epoch of a stop may not be recorded.
        wait_until(lambda: recorded() >= 60, 120, "an epoch that has read all records is in the ledger")
    assert rows()[0]["start"] == {topics.metrics: {"0": 10}}

    verified = run("verify", *arguments)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    newest = next(one for one in reversed(read_topic(servers, topics.agg)) if NAME.encode() in (one.key or b""))
    value = json.loads(newest.value or b"")
    value["count"] += 1
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topics.agg, key=newest.key, value=json.dumps(value).encode())
    assert producer.flush(30) == 0
    wrong = run("verify", *arguments)
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    (row,) = [line for line in wrong.stdout.splitlines() if NAME in line]
    assert all(word in row for word in ("orders", "count", str(value["count"]), str(value["count"] - 1)))
    assert "1 difference" in wrong.stdout

    delete_before(15)
    error = run("verify", *arguments)
    assert error.returncode == 3, error.stdout + error.stderr
    assert f"'{topics.metrics}:0': 15" in error.stderr
