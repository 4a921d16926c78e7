"""`rebuild` on a real broker: more shards and other tags, the lease, and a stop."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from support.aggregator import running_aggregator
from support.commands import run, running
from support.exactness import assert_exact
from support.fleet import Fleet
from support.kafka import latest_sums
from support.wait import wait_until
from tallystream_aggregator.jobs.rebuild import RebuildSettings
from tallystream_aggregator.jobs.rebuild import run as rebuild
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.lease import Lease, LeaseError
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.shutdown import StopRequest
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_table_gets_more_shards_and_other_tags(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify agrees with the sums before and after, on one checkpoint. Sums that are no more are empty.

    A rebuild is refused with too few partitions, and while another process has the lease. A stop changes nothing. An
    aggregator with other options is refused.
    """
    topics, servers = Topics(topic_prefix), broker.bootstrap_servers
    create_topics(admin, topics)
    options = ("--bootstrap-servers", servers, "--topic-prefix", topic_prefix)
    fleet = Fleet(servers, topics.metrics, seed=14)
    fleet.publish(300)
    with running_aggregator(servers, topic_prefix, tmp_path, "--drop-tag", "part") as process:
        assert_exact(broker, topics)
        process.kill()
        process.wait(60)
    assert tags_of_counts(servers, topics) == set()
    fleet.publish(200)
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    for other in (("--keep-tags", "region,topic"), ("--shards", "2")):
        refused = run("aggregate", *options, *checkpoint, *other)
        assert refused.returncode == 2
        assert refused.stderr.splitlines()[-1].endswith("leave the option out, or run tallystream rebuild with it.")
    narrow = run("rebuild", *options, "--all-tags", "--shards", "3")
    assert f"--topic {topics.table} --partitions 3" in narrow.stderr
    add_partitions(admin, topics, 3)

    changed = run("rebuild", *options, "--all-tags", "--shards", "3")
    assert changed.returncode == 0, changed.stderr
    assert "it has 3 shards, sums with all tags now" in changed.stdout
    fleet.publish(100)
    with running_aggregator(servers, topic_prefix, tmp_path):
        assert_exact(broker, topics)
    assert tags_of_counts(servers, topics) == {"part"}
    _require_waiting(servers, topic_prefix, tmp_path / "stopped.log", monkeypatch)
    again = run("rebuild", *options, "--shards", "3")
    assert "the table had 3 shards, sums with all tags; it has 3 shards, sums with all tags now" in again.stdout
    fewer = run("rebuild", *options, "--shards", "2")
    assert fewer.returncode == 2
    assert "it can be split into more, never into fewer" in fewer.stderr
    tags = run("rebuild", *options, "--drop-tag", "part")
    assert tags.returncode == 0, tags.stderr
    with running_aggregator(servers, topic_prefix, tmp_path):
        fleet.publish(100)
        assert_exact(broker, topics)
    assert tags_of_counts(servers, topics) == set()


def _require_waiting(servers: str, prefix: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Require that a rebuild waits while another process has the lease, and ends by a stop."""
    with closing(Lease(Topics(prefix).ledger, {"bootstrap.servers": servers}, prefix=prefix)) as lease:
        lease.wait(stopped=lambda: False)
        monkeypatch.setattr("tallystream_aggregator.jobs.rebuild.WAIT_S", 1.0)
        settings = RebuildSettings(Cluster(servers, prefix), shards=3)
        with pytest.raises(LeaseError, match="an aggregator is active"):
            rebuild(settings, print, StopRequest())
        options = ("--bootstrap-servers", servers, "--topic-prefix", prefix)
        with running(log, "rebuild", *options, "--shards", "3") as stopped:
            wait_until(lambda: "waiting for the lease" in log.read_text(), 60, "it waits", poll=0.01)
        assert stopped.returncode == 130
        assert "stopped: the table is as it was\n" in log.read_text()


def add_partitions(admin: AdminClient, topics: Topics, number: int) -> None:
    for added in admin.create_partitions([NewPartitions(topics.table, number)]).values():
        added.result()


def tags_of_counts(servers: str, topics: Topics) -> set[str]:
    """Return the names of the tags of all sums that count something."""
    return {tag for (*_, tags), row in latest_sums(servers, topics.agg).items() if row.count for tag, _ in tags}
