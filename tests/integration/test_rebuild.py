"""A checkpoint that was lost, on a real broker and real Spark: refused, rebuilt from `metrics-table`, exact."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import TopicPartition

from support.application import Application, assert_exact
from support.kafka import aggregator, committed, read_topic, run
from support.processes import tree
from support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


def test_a_lost_checkpoint_is_refused_and_rebuilt_exactly(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """The aggregator is killed, its checkpoint gone: it does not begin from nothing, it names the remedy.

    Rebuilt, its sums equal the oracle's and verify agrees; so do those after a further kill, with what was read deleted
    from `metrics`, over all records that there ever were. A checkpoint that is in use is not rebuilt over.
    """
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    application = Application(broker.bootstrap_servers, topics.metrics, seed=11)
    application.publish(600)
    group = topic_prefix + "tallystream-aggregator"
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path) as process:
        wait_until(lambda: committed(broker.bootstrap_servers, group, topics.metrics) >= 600, 120, "a batch is done")
        in_use = run("rebuild", *options, *checkpoint)
        application.publish(900)
        everything = tree(process.pid)
        process.kill()
        process.wait(60)
        psutil.wait_procs(everything, 60)  # Spark's JVM may still write into the checkpoint
    assert in_use.returncode == 2
    assert "it is in use" in in_use.stderr
    shutil.rmtree(tmp_path / "checkpoint")
    refused = run("aggregate", *options, *checkpoint)
    assert refused.returncode == 2, refused.stderr
    assert "run tallystream rebuild" in refused.stderr.splitlines()[-1]
    rebuilt = run("rebuild", *options, *checkpoint)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert f"{topics.metrics} is read from" in rebuilt.stdout

    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path) as process:
        application.publish(400)
        assert_exact(broker, topics)
        verified = run("verify", *options)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        process.kill()
        process.wait(60)
    read = committed(broker.bootstrap_servers, group, topics.metrics)
    earlier = [record for record in read_topic(broker.bootstrap_servers, topics.metrics) if record.offset < read]
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, read)]).values():
        future.result()
    application.publish(200)
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
        assert_exact(broker, topics, earlier)


def test_records_that_were_deleted_before_they_were_read_are_said(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """Where `metrics` lacks what the table lacks, a rebuild is refused with their number; an empty table too.

    What the table has may be gone.
    """
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    nothing = run("rebuild", *options, *checkpoint)
    assert nothing.returncode == 1
    assert "nothing to rebuild from" in nothing.stderr
    application = Application(broker.bootstrap_servers, topics.metrics, seed=12)
    application.publish(100)
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
        assert_exact(broker, topics)
    shutil.rmtree(tmp_path / "checkpoint")
    read = committed(broker.bootstrap_servers, topic_prefix + "tallystream-aggregator", topics.metrics)
    application.publish(50)
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, read)]).values():
        future.result()
    assert run("rebuild", *options, *checkpoint).returncode == 0
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, read + 7)]).values():
        future.result()
    refused = run("rebuild", *options, *checkpoint)
    assert refused.returncode == 2, refused.stderr
    assert "7}" in refused.stderr
    assert run("rebuild", *options, *checkpoint, "--accept-partial").returncode == 0
