"""Tables that read several topics by a pattern, or some partitions of one, as a catch-up: journals and verify agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from support.aggregator import Aggregator
from support.commands import run
from support.exactness import assert_as_acknowledged, counts, dead_letters
from support.fleet import Fleet, Journal
from support.kafka import committed, end_offsets
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics, create_topics, policies
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_all_topics_of_a_pattern_are_summed_also_one_that_is_created_later(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """Two topics, and a third and a partition that are added while it runs, are exact and committed; verify agrees.

    The output topics match the pattern, but are not read. Without the pattern the same table is refused.
    """
    servers, like = broker.bootstrap_servers, policies(topics)[topics.metrics]
    names = [topics.metrics, f"{topics.metrics}-mail", f"{topics.metrics}-late"]

    def create(name: str, partitions: int) -> None:
        admin.create_topics([NewTopic(name, partitions, 1, config=dict(like))])[name].result(30)

    create(names[1], 2)
    pattern = ("--topic-pattern", f"{topic_prefix}metrics.*")
    fleets = [Fleet(servers, name, 20 + n, app=f"app{n}") for n, name in enumerate(names)]
    for fleet in fleets[:2]:
        fleet.publish(150)
    with Aggregator(servers, topic_prefix, tmp_path, *pattern) as aggregator:
        aggregator.start().wait_ready()
        create(names[2], 1)
        admin.create_partitions([NewPartitions(names[1], 3)])[names[1]].result(30)
        fleets.append(Fleet(servers, names[1], 23, app="app3"))  # it knows the new partition at once
        for fleet in fleets:
            fleet.publish(100)
        for name in names:
            due = end_offsets(servers, name)
            assert len(due) == (3 if name == names[1] else len(due))
            aggregator.wait_committed(name, due, 120, f"{name} is summed")
        assert_as_acknowledged(broker, topics, fleets)
        assert aggregator.restarts == 0
        assert aggregator.stop() == 0, aggregator.output()
    where = ("--bootstrap-servers", servers, "--topic-prefix", topic_prefix)
    verified = run("verify", *where)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert f"{names[2]}:0: " in verified.stdout
    refused = run("aggregate", *where, "--checkpoint", str(aggregator.checkpoint))
    assert refused.returncode == 2, refused.stderr
    assert "has read more" in refused.stderr.splitlines()[-1]


def test_only_the_named_partitions_are_summed(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """Two of three partitions are read: the sums are those of their records, verify agrees, the third has no offset."""
    servers, topics = broker.bootstrap_servers, Topics(topic_prefix)
    create_topics(admin, topics, partitions=3)
    fleet = Fleet(servers, topics.metrics, 30)
    fleet.publish(300)
    where = ("--bootstrap-servers", servers, "--topic-prefix", topic_prefix)
    aggregate = ("aggregate", *where, "--checkpoint", str(tmp_path / "checkpoint"), "--catch-up")
    missing = run(*aggregate, "--partitions", "0,7")
    assert missing.returncode == 2, missing.stderr
    assert missing.stderr.splitlines()[-1].startswith("--partitions: [7] can't be used; ")
    done = run(*aggregate, "--partitions", "0,2")
    assert done.returncode == 0, done.stderr
    read = Journal({at: entry for at, entry in fleet.journal.valid.items() if at[0] != 1})
    assert counts(broker, topics) == read.totals() != fleet.journal.totals()
    assert dead_letters(broker, topics) == {at for at in fleet.journal.malformed if at[0] != 1}
    group = topic_prefix + "tallystream-aggregator"
    end = end_offsets(servers, topics.metrics)[2]
    wait_until(lambda: committed(servers, group, topics.metrics, 2) == end, 30, "partition 2 is committed to its end")
    assert committed(servers, group, topics.metrics, 1) == -1001
    verified = run("verify", *where)
    assert verified.returncode == 0, verified.stdout + verified.stderr
