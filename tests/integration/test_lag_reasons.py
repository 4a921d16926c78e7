"""Groups on a real broker that do not read on, and what the collector says about them."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from support.lag_broker import commit, fill, member
from support.wait import wait_until
from tallystream_dashboards.lag.collector.kafka_admin import NAMELESS, BrokerUnavailableError, OffsetFetcher
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.time_lag import NO_LAG

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker
    from tallystream_dashboards.lag.state import GroupState

pytestmark = pytest.mark.integration


class Collecting:
    """A collector of one group, by a clock that the test advances, so that a group that stopped is seen at once."""

    def __init__(self, admin: AdminClient, group: str, *, assigned_only: bool = False) -> None:
        self._now = time.time()
        self._tracker = LagTracker(
            OffsetFetcher(admin, timeout=30, stopping=lambda: False, clock=lambda: self._now),
            Patterns((group,)),
            Rules(window_s=100),
            clock=lambda: self._now,
            assigned_only=assigned_only,
        )

    def state(self) -> GroupState:
        """Return the group after rounds of more than a window. The first waits for a coordinator that is loading."""
        wait_until(self._is_read, 60, "the group is read")
        for _ in range(3):
            self._now += 40
            (state,) = self._tracker.round().states
        return state

    def _is_read(self) -> bool:
        self._now += 1
        with suppress(BrokerUnavailableError):
            found = self._tracker.round()
            return not found.problems and len(found.states) == 1
        return False


def transactional(broker: KafkaBroker, admin: AdminClient, topic: str) -> Producer:
    """Create the topic, and return a producer that has begun a transaction."""
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "transaction.timeout.ms": 300_000}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def test_records_behind_an_open_transaction_wait(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """A group that stopped is not OK, since it may read them uncommitted. The reason names the transaction."""
    topic, group = topic_prefix + "events", topic_prefix + "stopped"
    hanging = transactional(broker, admin, topic)
    hanging.produce(topic, b"open")
    assert hanging.flush(30) == 0
    other = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(9):
        other.produce(topic, b"x", partition=0)
    assert other.flush(30) == 0
    commit(admin, group, topic, {0: 0})
    state = Collecting(admin, group).state()
    hanging.abort_transaction(30)
    assert (state.evaluation.status, state.lag) == (Status.ERR, 10)
    assert state.partitions[0].evaluation.status is Status.STOP
    assert "10 records wait" in state.evaluation.reason
    assert "A transaction is open from offset 0 on" in state.evaluation.reason


def test_offsets_that_retention_deleted_are_named(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """They are neither records that wait nor nothing at all."""
    topic, group = topic_prefix + "events", topic_prefix + "stopped"
    fill(broker, admin, topic, partitions=1, records=10)
    commit(admin, group, topic, {0: 4})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 10)]).values()
    deleted.result(30)
    state = Collecting(admin, group).state()
    assert (state.evaluation.status, state.lag, state.time_lag) == (Status.WARN, 6, NO_LAG)
    assert "6 offsets were deleted before they were read." in state.evaluation.reason
    assert "6 records wait" not in state.evaluation.reason


def test_a_topic_that_the_group_left(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """Records of other applications in it are a warning that says why, and an option leaves the topic out."""
    old, new, group = topic_prefix + "old", topic_prefix + "new", topic_prefix + "moved"
    for topic in (old, new):
        fill(broker, admin, topic, partitions=1, records=3)
    commit(admin, group, old, {0: 0})
    with member(broker, group, new) as consumer:
        read = consumer.consume(3, timeout=60)
        assert len(read) == 3
        consumer.commit(read[-1], asynchronous=False)
        state = Collecting(admin, group).state()
        without = Collecting(admin, group, assigned_only=True).state()
    found = {one.topic: one.evaluation for one in state.partitions}
    assert (found[new].status, found[old].status, state.evaluation.status) == (Status.OK, Status.WARN, Status.WARN)
    assert "no member has this partition" in found[old].reason
    assert ([one.topic for one in without.partitions], without.evaluation.status) == ([new], Status.OK)


OFFSET_COMMIT, DELETE_GROUPS = 8, 42
"""Keys of requests in Kafka's protocol."""


def commit_without_group_id(broker: KafkaBroker, topic: str, offset: int) -> None:
    """Commit an offset under the empty group ID, as an old client without a group.id does (OffsetCommit, version 2)."""
    body = _text("") + struct.pack(">i", -1) + _text("") + struct.pack(">qi", -1, 1) + _text(topic)
    answer = _request(broker, OFFSET_COMMIT, 2, body + struct.pack(">iiqh", 1, 0, offset, -1))
    assert answer[-2:] == b"\0\0"


def delete_group_without_id(broker: KafkaBroker) -> None:
    """Delete that group (DeleteGroups, version 0)."""
    assert _request(broker, DELETE_GROUPS, 0, struct.pack(">i", 1) + _text(""))[-2:] == b"\0\0"


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _request(broker: KafkaBroker, key: int, version: int, body: bytes) -> bytes:
    """Send a request of an old version, whose header has no tags, and return the response."""
    host, port = broker.bootstrap_servers.split(":")
    message = struct.pack(">hhi", key, version, 1) + _text("test") + body
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(message)) + message)
        (length,) = struct.unpack(">i", answers.read(4))
        return answers.read(length)


def test_the_group_with_the_empty_id(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """The broker lists it. Other groups are read, and the problem names it."""
    topic, group = topic_prefix + "events", topic_prefix + "billing"
    fill(broker, admin, topic, partitions=1, records=3)
    commit(admin, group, topic, {0: 1})
    commit_without_group_id(broker, topic, 2)
    try:
        fetcher = OffsetFetcher(admin, timeout=30, stopping=lambda: False)
        wait_until(lambda: NAMELESS in fetcher.fetch(Patterns((group, ""))).problems, 60, "the group is listed")
        assert [one.group for one in fetcher.fetch(Patterns((group, ""))).groups] == [group]
        assert fetcher.fetch(Patterns((group, ""), exclude=("",))).problems == ()
    finally:
        delete_group_without_id(broker)
