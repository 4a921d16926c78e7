"""The lag of groups on a real broker: the collector, and the reasons that only the broker can tell."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.aggregator import WAITING, Aggregator
from support.commands import running
from support.stores import write
from support.wait import wait_until
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port
from tallystream_dashboards.lag.collector.kafka_admin import (
    BrokerUnavailableError,
    OffsetFetcher,
    StoppedError,
)
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker
from tallystream_dashboards.lag.offsets import GroupOffsets
from tallystream_dashboards.lag.reader import read_groups
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.storage import LAG, RECORDS
from tallystream_dashboards.lag.time_lag import NO_LAG


def fill(broker: KafkaBroker, admin: AdminClient, topic: str, *, partitions: int, records: int) -> None:
    """Create a topic with `records` records in each partition."""
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(partitions):
        for number in range(records):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(30) == 0


def commit(admin: AdminClient, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets for a group without members, as the aggregator does."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def is_committed() -> bool:
        (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]).values()
        return all(one.error is None for one in future.result(30).topic_partitions)

    wait_until(is_committed, 60, "the coordinator has loaded")


@contextmanager
def member(broker: KafkaBroker, group: str, topic: str) -> Iterator[Consumer]:
    """Yield a consumer that has its partitions and does not commit by itself."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


pytestmark = pytest.mark.integration


def fetch(admin: AdminClient, *include: str, exclude: tuple[str, ...] = ()) -> dict[str, GroupOffsets]:
    """Return the groups' offsets. Retry while there are problems, such as a coordinator that is loading."""
    deadline = time.monotonic() + 30
    fetcher = OffsetFetcher(lambda: admin, timeout=30, stopping=lambda: False)
    while (offsets := fetcher.fetch(Patterns(include, exclude))).problems:
        assert time.monotonic() < deadline, offsets.problems
        time.sleep(0.5)
    return {group.group: group for group in offsets.groups}


def test_a_member_without_a_commit_has_partitions(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """Before the first commit a group's partitions are those of its members, without a lag."""
    topic, group = topic_prefix + "events", topic_prefix + "new"
    fill(broker, admin, topic, partitions=2, records=5)
    with member(broker, group, topic) as consumer:
        wait_until(lambda: consumer.poll(0.1) is not None, 60, "the member has a record")
        found = fetch(admin, group)[group]
    assert [one.lag for one in found.partitions] == [None, None]


def test_a_deleted_topic_has_no_lag(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """After a topic is deleted, only the group's other topic has lag."""
    kept, deleted, group = topic_prefix + "kept", topic_prefix + "deleted", topic_prefix + "billing"
    for topic in (kept, deleted):
        fill(broker, admin, topic, partitions=1, records=4)
        commit(admin, group, topic, {0: 1})
    assert {one.topic for one in fetch(admin, group)[group].partitions} == {kept, deleted}
    admin.delete_topics([deleted])[deleted].result(30)
    wait_until(
        lambda: {one.topic for one in fetch(admin, group)[group].partitions} == {kept}, 60, "the topic is deleted"
    )


def test_an_unavailable_broker_is_an_error() -> None:
    """The error is one that can be retried, and is raised within the timeout."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(BrokerUnavailableError):
        OffsetFetcher(lambda: admin, timeout=2, stopping=lambda: False).fetch(Patterns())


def test_a_stop_does_not_wait_for_the_broker() -> None:
    """A stop ends a request that no broker answers long before its timeout."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(StoppedError):
        OffsetFetcher(lambda: admin, timeout=600, stopping=lambda: True).fetch(Patterns())


def test_the_collector_writes_lag_to_the_store_and_serves_it(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """The command writes lag to the store and serves it, marks a deleted group, and exits with 0 on SIGTERM.

    It compares what the store has of the records of a consumer, and writes and serves that, too.
    """
    topic, group, deleted = topic_prefix + "events", topic_prefix + "billing", topic_prefix + "deleted"
    fill(broker, admin, topic, partitions=1, records=100)
    commit(admin, group, topic, {0: 30})
    commit(admin, deleted, topic, {0: 90})
    spec, ready, log, port = f"local:{tmp_path / 'store.db'}", tmp_path / "ready", tmp_path / "log", free_port()
    counter = {"app": "billing", "metric_type": "counter"}
    position = {"app": "billing", "metric_type": "position", "topic": topic, "partition": "0"}
    sums = {"n": (counter, {"count": 33}), "n.position": (position, {"start": 0, "position": 30})}
    begun_ms = round(time.time() * 1000)
    assert write(StoreSettings.parse(spec), [Point(name, *one, begun_ms) for name, one in sums.items()]) == 0
    arguments = ["lag", "collect", "--bootstrap-servers", broker.bootstrap_servers, "--store", spec]
    arguments += ["--interval", "1", "--include", topic_prefix + "*", "--ready-file", str(ready)]
    arguments += ["--http-port", str(port)]

    def served(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def get(group: str | None = None) -> list[dict[str, Any]]:
        return json.loads(served("/v1/groups" if group is None else f"/v1/groups?group={group}"))["groups"]

    with running(log, *arguments) as process, closing(open_store(StoreSettings.parse(spec))) as reader:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "the first round is written")
        assert process.poll() is None, log.read_text()
        assert {one["group"]: one["lag"] for one in get()} == {group: 70, deleted: 10}
        assert f'kafka_consumergroup_group_sum_lag{{group="{group}"}} 70' in served("/metrics")
        assert json.loads(served("/readyz")) == {"ok": True}
        twice = 'tallystream_records{app="billing",metric="n",number="counted_twice"} 3.0'
        wait_until(lambda: twice in served("/metrics"), 60, "the records are compared")
        commit(admin, group, topic, {0: 95})
        wait_until(lambda: get(group)[0]["lag"] == 5, 60, "the commit is read")
        (partition,) = get(group)[0]["partitions"]
        assert (partition["committed"], partition["end"], partition["lag"]) == (95, 100, 5)
        admin.delete_consumer_groups([deleted])[deleted].result(30)
        wait_until(lambda: get(deleted)[0]["gone"], 60, "the group is found to be gone")
        now_ms = round(time.time() * 1000)
        wait_until(
            lambda: (
                [(s.group, s.gone) for s in read_groups(reader, at_ms=now_ms + 60_000)]
                == [(deleted, True), (group, False)]
            ),
            60,
            "the store says the same",
        )
        found = reader.read(LAG, ["lag"], start_ms=0, end_ms=2**62, tags={"group": group, "topic": topic})
        assert [found[0].values[0], found[0].values[-1]] == [70, 5]
        (records,) = reader.read(RECORDS, ["counted_twice"], start_ms=0, end_ms=2**62)
        assert (records.tags, records.values[0]) == ({"app": "billing", "metric": "n"}, 3)
    assert process.returncode == 0, log.read_text()


class Collecting:
    """A collector of one group, by a clock that the test advances, so that a group that stopped is seen at once."""

    def __init__(self, admin: AdminClient, group: str, *, assigned_only: bool = False) -> None:
        self._now = time.time()
        self._tracker = LagTracker(
            OffsetFetcher(lambda: admin, timeout=30, stopping=lambda: False, clock=lambda: self._now),
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


def test_a_standby_collects_no_lag(broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    """Two collectors would write to one store. A standby collects the lag when it has taken over."""
    options = ("--store", f"local:{tmp_path / 'store.db'}", "--lag-port", "0")
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    first, second = (Aggregator(broker.bootstrap_servers, topic_prefix, folder, *options) for folder in folders)
    collects = "lag is served at http://127.0.0.1:"
    with first.start(), second:
        first.wait_ready()
        wait_until(lambda: collects in first.output(), 60, "it collects the lag")
        second.start()
        wait_until(lambda: WAITING in second.output(), 60, "the second one is a standby")
        assert collects not in second.output()
        assert first.stop() == 0
        second.wait_ready()
        wait_until(lambda: collects in second.output(), 60, "it collects the lag")
        assert second.stop() == 0


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
