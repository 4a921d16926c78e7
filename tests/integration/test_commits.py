"""The offsets of a query's consumer group, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.kafka import committed
from tallystream_aggregator.kafka.groups import GroupCommitter

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration


def test_what_is_not_read_any_more_leaves_the_group(broker: KafkaBroker, topics: Topics, topic_prefix: str) -> None:
    """A topic that a query has given up shows no lag for ever; the others stay, and may be committed again from 0."""
    servers, group = broker.bootstrap_servers, topic_prefix + "shipper"
    committer = GroupCommitter({"bootstrap.servers": servers}, group)
    assert committer.keep(lambda _topic, _partition: False, topic=topics.agg) == {}
    committer.commit({topics.agg: {"0": 7}, topics.table: {"0": 9}})
    committer.close()
    committer = GroupCommitter({"bootstrap.servers": servers}, group)
    assert committer.keep(lambda topic, _partition: topic == topics.agg, topic=topics.agg) == {topics.table: {"0": 9}}
    assert [committed(servers, group, topic) for topic in (topics.agg, topics.table)] == [7, -1001]
    assert committer.keep(lambda topic, _partition: topic == topics.agg, topic=topics.agg) == {}
    assert committer.commit({topics.agg: {"0": 6}, topics.table: {"0": 3}}) == {topics.table: {"0": 3}}
    committer.close()
