"""`forget` on a real broker, with a table of several shards: a metric, and an instance while no aggregator runs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.aggregator import running_aggregator
from support.commands import run, running
from support.exactness import assert_exact
from support.fleet import Fleet
from support.kafka import latest_sums, read_topic
from support.replayed import Key
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SHARDS = 3


def test_a_metric_and_an_instance_are_forgotten_in_a_table_of_shards(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """The sums equal the replay's afterwards. What is published while no aggregator runs is applied by the next one."""
    topics = Topics(topic_prefix)
    create_topics(admin, topics, shards=SHARDS)
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed=13)
    fleet.publish(300)
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, "--shards", str(SHARDS)):
        assert_exact(broker, topics)
        _forget(broker, topics, options)
    _require_stopped(broker, topics, options, tmp_path / "forget.log")
    late = run("forget", *options, "--instance", "orders-3", "--yes", "--timeout", "1")
    assert late.returncode == 1
    assert "no aggregator has applied it within 1 s; one that runs or starts does" in late.stderr
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
        fleet.publish(100)
        assert_exact(broker, topics)


def _forget(broker: KafkaBroker, topics: Topics, options: tuple[str, ...]) -> None:
    """Forget a metric. A dry run changes nothing. Afterwards its sums are 0, and other sums are unchanged."""
    keys: list[Key] = [("orders", "calls", "meter", (("part", part),)) for part in "01"]
    before = _counts(broker, topics, keys)
    dry = run("forget", *options, "--metric", "calls", "--json")
    assert (dry.returncode, json.loads(dry.stdout)["published"]) == (0, False), dry.stderr
    assert [one["tags"] for one in json.loads(dry.stdout)["sums"]] == [{"part": part} for part in "01"]
    assert _counts(broker, topics, keys) == before
    done = run("forget", *options, "--metric", "calls", "--yes")
    assert done.returncode == 0, done.stderr
    assert "applied: the sums are published" in done.stderr
    assert _counts(broker, topics, keys) == [0, 0]
    assert_exact(broker, topics)


def _counts(broker: KafkaBroker, topics: Topics, keys: list[Key]) -> list[int]:
    sums = latest_sums(broker.bootstrap_servers, topics.agg)
    return [sums[key].count or 0 for key in keys]


def _require_stopped(broker: KafkaBroker, topics: Topics, options: tuple[str, ...], log: Path) -> None:
    """Require that SIGTERM ends the wait for an aggregator, and that the log says how many records were published."""
    before = len(read_topic(broker.bootstrap_servers, topics.metrics))
    with running(log, "forget", *options, "--metric", "queue", "--yes") as process:
        wait_until(lambda: "waiting for the aggregator" in log.read_text(), 60, "the records are published")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130, log.read_text()
    # One record for each shard in each partition.
    records = len(read_topic(broker.bootstrap_servers, topics.metrics)) - before
    assert records > 0
    assert records % SHARDS == 0
    stopped = f"stopped: {records} records are published, and an aggregator that runs or starts applies them"
    assert stopped in log.read_text().splitlines()
