"""The aggregator and verify, when a partition of `metrics` has no leader with all of its records any more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.aggregator import Aggregator
from support.cluster.brokers import KafkaCluster
from support.commands import run
from support.exactness import assert_as_acknowledged, assert_exact
from support.faults import last_line
from support.fleet import Fleet
from support.kafka import read_topic
from support.replayed import TopicRecord
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics, create_topics, policies

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

LEADER, FOLLOWER = 1, 2
LIMIT_S = 300.0
LOST = re.compile(r"lost the offsets (\d+) to (\d+), as by an unclean leader election")


def test_what_an_unclean_election_loses_is_named(tmp_path: Path) -> None:
    """Without the leader, and with a follower that lacks records, the partition waits, and so does the aggregator.

    When the leader is back, nothing is lost. When the follower is made the leader, the aggregator stops, now and after
    more records were written there than were lost. It and verify name the lost offsets. Sums still have all that was
    acknowledged until then.
    """
    topics = Topics("unclean-")
    with KafkaCluster(tmp_path, (0, 0, 0)) as cluster:
        servers, metrics = cluster.bootstrap_servers, TopicPartition(topics.metrics, 0)
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        config = {**policies(topics)[topics.metrics], "min.insync.replicas": "1"}
        new = NewTopic(topics.metrics, 1, replica_assignment=[[LEADER, FOLLOWER]], config=config)
        admin.create_topics([new])[topics.metrics].result(60)
        create_topics(admin, topics)
        fleet = Fleet(servers, topics.metrics, seed=1)
        fleet.publish(100)
        with Aggregator(servers, topics.prefix, tmp_path, "--latency", "low") as aggregator:
            aggregator.start().wait_ready()
            _leave_the_follower(cluster, topics, admin, fleet)
            assert aggregator.process.poll() is None, aggregator.output()
            cluster.start()
            fleet.publish(50)
            assert_exact(cluster, topics)
            assert_as_acknowledged(cluster, topics, [fleet])
            assert aggregator.process.poll() is None, aggregator.output()

            read = _leave_the_follower(cluster, topics, admin, fleet)
            elected = admin.elect_leaders(ElectionType.UNCLEAN, [metrics]).result(60)
            assert elected[metrics] is None, elected
            code = aggregator.wait_exit(LIMIT_S, "records are lost: the aggregator stops")
            assert code == 1, aggregator.output()
            errors = [last_line(aggregator.output())]
            Fleet(servers, topics.metrics, seed=3, app="later").publish(200)
            code = aggregator.start().wait_exit(LIMIT_S, "it can't be started again")
            assert code == 1, aggregator.output()
            errors.append(last_line(aggregator.output()))
        verified = run("verify", "--bootstrap-servers", servers, "--topic-prefix", topics.prefix)
        assert verified.returncode == 3, verified.stdout
        errors.append(last_line(verified.stderr))
        print(*errors, sep="\n")  # noqa: T201
        now = {record.offset: record for record in read_topic(servers, topics.metrics)}
        lost = [record.offset for record in read if now.get(record.offset) != record]
        assert len(now) > len(read) > len(lost) >= 50
        for error in errors:
            found = LOST.search(error)
            assert found is not None, error
            # The aggregator may have appended a record, and read it, after `read`.
            assert int(found[1]) == lost[0], error
            assert int(found[2]) >= lost[-1], error
        assert_as_acknowledged(cluster, topics, [fleet])


def _leave_the_follower(cluster: KafkaCluster, topics: Topics, admin: AdminClient, fleet: Fleet) -> list[TopicRecord]:
    """Let only the follower run, without the newest records, and return what had been read. It is no leader."""

    def state() -> tuple[int, list[int]]:
        partition = admin.list_topics(topics.metrics, timeout=30).topics[topics.metrics].partitions[0]
        return partition.leader, sorted(partition.isrs)

    wait_until(lambda: state() == (LEADER, [LEADER, FOLLOWER]), LIMIT_S, "the follower has all")
    cluster.nodes[FOLLOWER].stop()
    wait_until(lambda: state() == (LEADER, [LEADER]), LIMIT_S, "the follower is out")
    fleet.publish(50)
    assert_exact(cluster, topics)
    read = read_topic(cluster.bootstrap_servers, topics.metrics)
    cluster.nodes[LEADER].kill()
    cluster.nodes[FOLLOWER].begin()
    wait_until(lambda: state()[0] not in cluster.nodes, LIMIT_S, "there is no leader")
    wait_until(lambda: FOLLOWER in admin.list_topics(timeout=30).brokers, LIMIT_S, "the follower runs")
    cluster.wait_leaders([topics.agg, topics.table])
    assert state()[0] not in cluster.nodes
    return read
