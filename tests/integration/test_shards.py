"""A table of several shards on a real broker and real Spark: exact through a kill and a split into more shards."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import NewPartitions

from support.aggregator import running_aggregator
from support.commands import command, run
from support.exactness import assert_exact
from support.fleet import Fleet
from support.kafka import Key, latest_sums, read_topic
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_table_of_shards_is_exact_through_a_kill_and_a_split_into_more(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """Three shards on two partitions continue after SIGKILL; a rebuild splits them into five.

    Then a metric is forgotten, and, while no aggregator runs, an instance. The sums equal the replay's each time.
    Another number of shards for a checkpoint is refused with the remedy.
    """
    topics = Topics(topic_prefix)
    create_topics(admin, topics, shards=3)
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed=13)
    fleet.publish(400)
    with running_aggregator(
        broker.bootstrap_servers, topic_prefix, tmp_path, "--shards", "3", "--state-partitions", "2"
    ) as process:
        fleet.publish(400)
        process.kill()
        process.wait(60)
    fleet.publish(100)
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path) as process:
        assert assert_exact(broker, topics)
    assert process.returncode == 0
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    refused = run("aggregate", *options, "--checkpoint", str(tmp_path / "checkpoint"), "--shards", "5")
    assert refused.returncode == 2
    assert "has 3: leave the option out, or run tallystream rebuild with it" in refused.stderr

    more = tmp_path / "more"
    more.mkdir()
    fewer = run("rebuild", *options, "--checkpoint", str(more / "checkpoint"), "--shards", "2")
    assert "it can be split into more, never into fewer" in fewer.stderr
    cut = run("rebuild", *options, "--checkpoint", str(more / "checkpoint"), "--shards", "5", "--partitions", "2")
    assert cut.returncode == 0, cut.stderr
    assert "5 shards on 2 partitions" in cut.stdout
    narrow = run("aggregate", *options, "--checkpoint", str(more / "checkpoint"))
    assert narrow.returncode == 2
    assert f"--topic {topics.table} --partitions 5" in narrow.stderr
    for added in admin.create_partitions([NewPartitions(topics.table, 5)]).values():
        added.result()
    fleet.publish(200)
    with running_aggregator(broker.bootstrap_servers, topic_prefix, more):
        fleet.publish(200)
        assert assert_exact(broker, topics)
        _forget(broker, topics, options)
    _require_own_partitions(broker, topics)
    shutil.rmtree(more / "checkpoint")
    assert run("rebuild", *options, "--checkpoint", str(more / "checkpoint")).returncode == 0
    for number in (signal.SIGINT, signal.SIGTERM):
        _require_stopped(number, broker, topics, options, tmp_path / "forget.log")
    late = run("forget", *options, "--instance", "orders-3", "--yes", "--timeout", "1")
    assert late.returncode == 1
    assert "no aggregator has applied it within 1 s; one that runs or starts does" in late.stderr
    with running_aggregator(broker.bootstrap_servers, topic_prefix, more):
        fleet.publish(100)
        assert assert_exact(broker, topics)


def _forget(broker: KafkaBroker, topics: Topics, options: tuple[str, ...]) -> None:
    """Forget a metric. A dry run changes nothing. Afterwards its sums are 0, and other sums are unchanged."""
    keys = [("orders", "calls", "meter", (("part", part),)) for part in "01"]
    before = _counts(broker, topics, keys)
    dry = run("forget", *options, "--metric", "calls", "--json")
    assert (dry.returncode, json.loads(dry.stdout)["published"]) == (0, False), dry.stderr
    shown = [(one["is"]["count"], one["will_be"]["count"]) for one in json.loads(dry.stdout)["sums"]]
    assert sorted(shown) == sorted((count, 0) for count in before)
    assert _counts(broker, topics, keys) == before
    done = run("forget", *options, "--metric", "calls", "--yes")
    assert done.returncode == 0, done.stderr
    assert "applied: the sums are published" in done.stderr
    assert _counts(broker, topics, keys) == [0, 0]
    assert assert_exact(broker, topics)
    verified = run("verify", *options)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def _counts(broker: KafkaBroker, topics: Topics, keys: list[Key]) -> list[int]:
    sums = latest_sums(broker.bootstrap_servers, topics.agg)
    return [sums[key].count or 0 for key in keys]


def _require_stopped(
    number: signal.Signals, broker: KafkaBroker, topics: Topics, options: tuple[str, ...], log: Path
) -> None:
    """Require that a signal ends the wait for an aggregator, and that the log says how many records were published."""
    before = len(read_topic(broker.bootstrap_servers, topics.metrics))
    with log.open("wb") as out:
        process = subprocess.Popen(command("forget", *options, "--metric", "queue", "--yes"), stderr=out)
    try:
        wait_until(lambda: "waiting for the aggregator" in log.read_text(), 60, "the records are published")
        process.send_signal(number)
        assert process.wait(60) == 130, log.read_text()
    finally:
        process.kill()
        process.wait()
    # One record for each of five shards in each partition.
    records = len(read_topic(broker.bootstrap_servers, topics.metrics)) - before
    assert records > 0
    assert records % 5 == 0
    assert log.read_text().splitlines()[-1] == (
        f"stopped: {records} records are published, and an aggregator that runs or starts applies them"
    )


def _require_own_partitions(broker: KafkaBroker, topics: Topics) -> None:
    """Require that the last record of each partition is the shard record of its own shard."""
    last = {read.partition: read.key for read in read_topic(broker.bootstrap_servers, topics.table)}
    assert last == {shard: b'["shard",%d]' % shard for shard in range(5)}
