"""Faults of a real aggregator: kills, lost checkpoints, an outage, a takeover, and what was deleted unread."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from support.aggregator import Aggregator
from support.commands import run
from support.exactness import assert_exact, counts, wait_all_committed
from support.faults import STOP_S, last_line, random_kills
from support.fleet import Fleet, Journal
from support.kafka import end_offsets, latest_sums, read_topic
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

DELETED, RECREATED = "records were deleted before they were read", "it was deleted and created again"
LOST = "it lost the offsets"


def test_sums_are_exact_and_published_once_through_kills_and_lost_checkpoints(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """With Spark, the driver, the JVM and a worker are killed under load.

    With one kill the checkpoint is lost, with the other one it is damaged. Sums agree with replay and journal, no count
    falls, no position goes back, and dead letters are there once. Then the table is split. The checkpoint has the query
    of one shard: the aggregator sets it aside, and goes on with three.
    """
    topics, servers = Topics(topic_prefix), broker.bootstrap_servers
    create_topics(admin, topics, shards=3)
    faults = [("worker", 0.0), ("lost", 0.0), ("damaged", 0.0)]
    random_kills(broker, topics, tmp_path, faults, seed=5)
    split = run("rebuild", "--bootstrap-servers", servers, "--topic-prefix", topic_prefix, "--shards", "3")
    assert split.returncode == 0, split.stderr
    fleet = Fleet(servers, topics.metrics, seed=13)
    fleet.publish(200)
    with Aggregator(servers, topic_prefix, tmp_path, spark=True) as aggregator:
        aggregator.start().wait_ready()
        fleet.publish(200)
        assert_exact(broker, topics)
        assert aggregator.stop() == 0
    last = {read.partition: read.key for read in read_topic(servers, topics.table)}
    assert last == {shard: b'["positions",%d]' % shard for shard in range(3)}


def test_a_table_of_shards_goes_on_exactly(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """Without Spark it is killed and paused, the broker is killed, a checkpoint is lost, and another one damaged.

    A standby takes over from it while it is stopped, and it ends when it continues. Verify agrees with every sum that
    was published.
    """
    topics = Topics(topic_prefix)
    create_topics(admin, topics, partitions=2, shards=2)
    kills = [(kind, 0.0) for kind in ("driver", "lost", "damaged", "takeover")]
    faults = [*kills, ("broker", 1.0), ("pause", 1.5)]
    random_kills(broker, topics, tmp_path, faults, seed=2, shards=2, spark=False)


def test_a_recreated_topic_stops_the_aggregator(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path
) -> None:
    """It ends with an error while it runs, and again at the next start on its checkpoint. No sum changes.

    At that start the new topic has more records than the old one had, so that all offsets are in range.
    """
    Fleet(broker.bootstrap_servers, topics.metrics, 1).publish(100)
    with Aggregator(broker.bootstrap_servers, topics.prefix, tmp_path) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        before = _counts(broker, topics)
        _delete(admin, topics.metrics)
        create_topics(admin, topics)
        code = aggregator.wait_exit(STOP_S, "the topic was created again: the aggregator stops")
        assert code not in (0, None), aggregator.output()
        error = last_line(aggregator.output())
        assert LOST in error or RECREATED in error
        Fleet(broker.bootstrap_servers, topics.metrics, 2).publish(400)
        code = aggregator.start().wait_exit(STOP_S * 2, "a start on the new topic is refused")
        assert code == 1, aggregator.output()
        assert f"topic {topics.metrics}: {RECREATED}" in last_line(aggregator.output())
    assert _counts(broker, topics) == before


@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_records_deleted_before_they_were_read_stop_the_aggregator(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path, policy: str
) -> None:
    """It ends with an error, and no sum changes, unless the option allows it to continue without them.

    Then the sums include the records that were read before and the remaining ones.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 3, tombstones=False)
    fleet.publish(200)
    with Aggregator(broker.bootstrap_servers, topics.prefix, tmp_path, "--on-data-loss", policy) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        assert aggregator.stop() == 0, aggregator.output()
        before = _counts(broker, topics)
        end = end_offsets(broker.bootstrap_servers, topics.metrics)[0]
        fleet.publish(300)
        first = end_offsets(broker.bootstrap_servers, topics.metrics)[0] - 50
        for future in admin.delete_records([TopicPartition(topics.metrics, 0, first)]).values():
            future.result()
        aggregator.start()
        if policy == "continue":
            aggregator.wait_ready()
            fleet.publish(100)
            servers = broker.bootstrap_servers
            wait_all_committed(servers, topics, end_offsets(servers, topics.metrics))
            read = {at: entry for at, entry in fleet.journal.valid.items() if not end <= at[1] < first}
            assert counts(broker, topics) == Journal(read).totals() != fleet.journal.totals()
            assert aggregator.stop() == 0, aggregator.output()
            return
        code = aggregator.wait_exit(STOP_S * 2, "the offsets are out of range: the aggregator stops")
        assert code not in (0, None), aggregator.output()
        error = last_line(aggregator.output())
        assert DELETED in error
    assert _counts(broker, topics) == before


def _counts(broker: KafkaBroker, topics: Topics) -> dict[object, int | None]:
    return {key: row.count for key, row in latest_sums(broker.bootstrap_servers, topics.agg).items()}


def _delete(admin: AdminClient, topic: str) -> None:
    for future in admin.delete_topics([topic]).values():
        future.result()
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, 60, f"{topic} is deleted")
