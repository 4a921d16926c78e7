"""Sums without a tag on a real broker and real Spark: the option, another option, and a rebuild with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.aggregator import running_aggregator
from support.commands import run
from support.exactness import assert_exact
from support.fleet import Fleet
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_sums_lack_a_tag_until_a_rebuild_says_otherwise(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """The sums of both parts of an instance are one. A later start needs no option, and is refused with another one.

    After a rebuild with all tags, and with two shards, the sums have these tags, and the earlier sums are empty. verify
    needs no option for either table, and compares the sums of both.
    """
    topics = Topics(topic_prefix)
    create_topics(admin, topics, shards=2)
    servers, options = broker.bootstrap_servers, ("--bootstrap-servers", broker.bootstrap_servers)
    options += ("--topic-prefix", topic_prefix)
    fleet = Fleet(servers, topics.metrics, seed=14)
    fleet.publish(300)
    with running_aggregator(servers, topic_prefix, tmp_path, "--drop-tag", "part") as process:
        dropped = assert_exact(broker, topics, drop_tags=("part",))
        process.kill()
        process.wait(60)
    assert {tag for *_, tags in dropped for tag, _ in tags} == set()
    checkpoint = str(tmp_path / "checkpoint")
    refused = run("aggregate", *options, "--checkpoint", checkpoint, "--keep-tags", "region,topic")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].endswith(
        f"--keep-tags: 'region,topic' can't be used; the table in {checkpoint} has --drop-tag part: leave the option "
        "out, or run tallystream rebuild with it."
    )
    fleet.publish(200)
    with running_aggregator(servers, topic_prefix, tmp_path):
        dropped = assert_exact(broker, topics, drop_tags=("part",))
        verified = run("verify", *options)
        assert verified.returncode == 0, verified.stdout + verified.stderr

    other = tmp_path / "other"
    other.mkdir()
    rebuilt = run("rebuild", *options, "--checkpoint", str(other / "checkpoint"), "--all-tags", "--shards", "2")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert "tags of the sums: all tags" in rebuilt.stdout
    fleet.publish(100)
    with running_aggregator(servers, topic_prefix, other):
        whole = assert_exact(broker, topics, emptied=dropped)
        for period in ((), ("--from", "2020-01-01T00:00")):
            verified = run("verify", *options, *period)
            assert verified.returncode == 0, verified.stdout + verified.stderr
    assert {tag for *_, tags in whole for tag, _ in tags} == {"part"}

    again = tmp_path / "again"
    again.mkdir()
    rebuilt = run("rebuild", *options, "--checkpoint", str(again / "checkpoint"), "--drop-tag", "part")
    assert rebuilt.returncode == 0, rebuilt.stderr
    with running_aggregator(servers, topic_prefix, again):
        fleet.publish(100)
        assert_exact(broker, topics, drop_tags=("part",), emptied=whole)
        verified = run("verify", *options)
        assert verified.returncode == 0, verified.stdout + verified.stderr
