"""A lost checkpoint, on a real broker and real Spark: a start is refused, and a rebuild is exact."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from support.aggregator import running_aggregator
from support.commands import run
from support.exactness import assert_exact
from support.fleet import Fleet
from support.kafka import committed, read_topic
from support.processes import kill_tree
from support.wait import wait_until
from tallystream_aggregator.initial_state import initial_state_path, read_initial_state
from tallystream_aggregator.table.state import unpack

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.table.state import State
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


def test_a_lost_checkpoint_is_refused_and_rebuilt_exactly(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """After a kill and the loss of its checkpoint, the aggregator refuses to start; the error names the remedy.

    After a rebuild its sums equal the replay's and verify agrees. They stay exact over all records after another kill,
    with those that were read deleted from `metrics`. A rebuild does not replace a checkpoint that is in use.
    """
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed=11)
    fleet.publish(600)
    group = topic_prefix + "tallystream-aggregator"
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path) as process:
        wait_until(lambda: committed(broker.bootstrap_servers, group, topics.metrics) >= 600, 120, "a batch is done")
        in_use = run("rebuild", *options, *checkpoint)
        fleet.publish(900)
        kill_tree(process)
    assert in_use.returncode == 2
    assert "it is in use" in in_use.stderr
    shutil.rmtree(tmp_path / "checkpoint")
    refused = run("aggregate", *options, *checkpoint)
    assert refused.returncode == 2, refused.stderr
    assert "run tallystream rebuild" in refused.stderr.splitlines()[-1]
    rebuilt = run("rebuild", *options, *checkpoint)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert f"{topics.metrics} is read from" in rebuilt.stdout

    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path) as process:
        fleet.publish(400)
        assert_exact(broker, topics)
        verified = run("verify", *options)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        process.kill()
        process.wait(60)
    read = committed(broker.bootstrap_servers, group, topics.metrics)
    earlier = [record for record in read_topic(broker.bootstrap_servers, topics.metrics) if record.offset < read]
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, read)]).values():
        future.result()
    fleet.publish(200)
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
        assert_exact(broker, topics, earlier)


def test_a_rebuild_without_records_that_were_never_read_is_refused(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """If `metrics` lacks records that the table does not include, the error says how many. An empty table is refused.

    Records that the table includes may be deleted.
    """
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    empty = run("rebuild", *options, *checkpoint)
    assert empty.returncode == 1
    assert "nothing to rebuild from" in empty.stderr
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed=12)
    fleet.publish(100)
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
        assert_exact(broker, topics)
    shutil.rmtree(tmp_path / "checkpoint")
    read = committed(broker.bootstrap_servers, topic_prefix + "tallystream-aggregator", topics.metrics)
    fleet.publish(50)
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, read)]).values():
        future.result()
    assert run("rebuild", *options, *checkpoint).returncode == 0
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, read + 7)]).values():
        future.result()
    refused = run("rebuild", *options, *checkpoint)
    assert refused.returncode == 2, refused.stderr
    assert "7}" in refused.stderr
    assert run("rebuild", *options, *checkpoint, "--accept-partial").returncode == 0


def test_a_rebuild_leaves_out_an_earlier_table(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """A new table began on the same topics, from a later offset. A rebuild has only its lives."""
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    group, checkpoint = topic_prefix + "tallystream-aggregator", tmp_path / "checkpoint"

    def is_read(end: int) -> bool:
        return committed(broker.bootstrap_servers, group, topics.metrics) >= end

    records = []
    for seed, more in ((13, ()), (14, ("--from", "latest", "--accept-partial"))):
        with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, *more):
            Fleet(broker.bootstrap_servers, topics.metrics, seed=seed).publish(100)
            earlier, records = records, read_topic(broker.bootstrap_servers, topics.metrics)
            wait_until(partial(is_read, len(records)), 120, "all records are read")
        shutil.rmtree(checkpoint)
    rebuilt = run("rebuild", *options, "--checkpoint", str(checkpoint))
    assert rebuilt.returncode == 0, rebuilt.stderr
    lives = [life for known in rebuilt_state(checkpoint).lives.values() for life in known]
    assert lives
    assert all(offset >= len(earlier) for life in lives for offset in life.offsets.values())


def rebuilt_state(checkpoint: Path) -> State:
    """Return the state of the only shard that a rebuild has written for a checkpoint."""
    return unpack(read_initial_state(initial_state_path(checkpoint), shards=1).shards[0])
