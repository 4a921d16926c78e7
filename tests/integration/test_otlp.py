"""OTLP metrics on real servers: the sums equal the counts of the applications."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support import otlp
from support.commands import run
from support.kafka import end_offsets, latest_sums
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def publish(servers: str, topic: str, records: list[otlp.Appended]) -> None:
    """Append records to their partitions, and wait for the acknowledgements."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for one in records:
        producer.produce(topic, one.value, one.key, partition=one.partition)
    assert producer.flush(60) == 0


def counts(servers: str, topics: Topics) -> dict[tuple[str, str], int | None]:
    """Return the counts on `metrics-agg` by name and topic."""
    return {
        (name, dict(tags)["topic"]): row.count
        for (_, name, kind, tags), row in latest_sums(servers, topics.agg).items()
        if kind == "counter"
    }


def test_an_otlp_topic_is_added_to_a_table_and_stays(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """An existing table reads a new topic from its first record. Without the topic it does not start any more.

    Verify knows the topic without an option. Forgetting an instance removes its streams. The topic gets no other record
    of the aggregator.
    """
    servers, name, topics = broker.bootstrap_servers, f"{topic_prefix}a-otlp", Topics(topic_prefix)
    where = ("--bootstrap-servers", servers, "--topic-prefix", topic_prefix)
    aggregate = ("aggregate", *where, "--checkpoint", str(tmp_path / "checkpoint"), "--no-own-metrics", "--catch-up")
    for topic in (topics.metrics, name):
        admin.create_topics([NewTopic(topic, 2, 1, config=dict(policies(topics)[topics.metrics]))])[topic].result(30)
    short = otlp.Appended(0, 0, 0, b"app-0", b'{"name":"n","tags":{"topic":"a"},"value":7}')
    publish(servers, topics.metrics, [short])
    began = run(*aggregate)
    assert began.returncode == 0, began.stderr
    fleet = otlp.Fleet(5, begin_ns=time.time_ns() - 3600 * otlp.SECOND_NS)
    for _ in range(60):
        fleet.step()
    fleet.end()
    publish(servers, name, fleet.records)
    added = run(*aggregate, "--otlp-topic", name)
    assert added.returncode == 0, added.stderr
    assert counts(servers, topics) == {**fleet.counted, ("n", "a"): 7}
    refused = run(*aggregate, "--topic-pattern", f"{topic_prefix}.*")
    assert refused.returncode == 2
    assert f"add --otlp-topic {name}" in refused.stderr
    verified = run("verify", *where)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    instance = otlp.instance_of(fleet.records[0])
    forgotten = run("forget", *where, "--instance", instance, "--yes", "--timeout", "1")
    assert forgotten.returncode == 1, forgotten.stdout + forgotten.stderr  # no aggregator runs
    applied = run(*aggregate, "--otlp-topic", name)
    assert applied.returncode == 0, applied.stderr
    assert counts(servers, topics) == {**fleet.counted_without(instance), ("n", "a"): 7}
    verified = run("verify", *where)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert sum(end_offsets(servers, name).values()) == len(fleet.records) + 1
