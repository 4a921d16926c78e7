"""The lag of consumer groups, asked of a real broker."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.wait import wait_until
from tallystream.aggregator.sinks.stores import StoreSettings, open_reader
from tallystream.dashboards.lag import LAG, Behind, BeyondEnd, GroupLag, NothingCommitted
from tallystream.dashboards.lag._ask import Asker, BrokerAwayError, StoppedError
from tallystream.dashboards.lag._patterns import Patterns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tallystream.compose.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration


def fill(broker: KafkaBroker, admin: AdminClient, topic: str, *, partitions: int, records: int) -> None:
    """Make a topic with `records` records in each partition."""
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(partitions):
        for number in range(records):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(30) == 0


def commit(admin: AdminClient, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit for a group that has no members, as the aggregator does."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for future in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]).values():
        future.result(30)


@contextmanager
def member(broker: KafkaBroker, group: str, topic: str) -> Iterator[Consumer]:
    """Yield a consumer that has its partitions, and commits only when told."""
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


def ask(admin: AdminClient, *include: str, exclude: tuple[str, ...] = ()) -> dict[str, GroupLag]:
    """Ask once, and want no problem."""
    asked = Asker(admin, timeout=30, stopping=lambda: False).ask(Patterns(include, exclude))
    assert asked.problems == ()
    return {group.group: group for group in asked.groups}


def test_a_group_behind_by_a_known_number(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """A consumer that committed 30 of 100 records is 70 behind, living or gone: its members' end hides nothing."""
    topic, group = topic_prefix + "events", topic_prefix + "billing"
    fill(broker, admin, topic, partitions=1, records=100)
    with member(broker, group, topic) as consumer:
        read = consumer.consume(30, timeout=60)
        assert len(read) == 30
        consumer.commit(read[-1], asynchronous=False)
        living = ask(admin, group)[group]
    gone = ask(admin, group)[group]
    assert living.partitions == gone.partitions
    assert (living.members, gone.members) == (1, 0)
    assert [(one.start, one.end, one.progress) for one in gone.partitions] == [(0, 100, Behind(30, 70))]


def test_a_group_without_members_is_seen(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """Offsets committed for a group that never had a member, like the aggregator's, have lag like any other."""
    topic, group = topic_prefix + "metrics", topic_prefix + "tallystream-aggregator"
    fill(broker, admin, topic, partitions=3, records=10)
    commit(admin, group, topic, {0: 10, 1: 4})
    found = ask(admin, topic_prefix + "*")[group]
    assert [one.progress for one in found.partitions] == [Behind(10, 0), Behind(4, 6), NothingCommitted()]
    assert (found.total().records, found.total().unknown) == (6, 1)


def test_a_member_that_has_committed_nothing_is_seen(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str
) -> None:
    """A group's partitions are known from its members before the first commit, and have no lag yet."""
    topic, group = topic_prefix + "events", topic_prefix + "new"
    fill(broker, admin, topic, partitions=2, records=5)
    with member(broker, group, topic) as consumer:
        wait_until(lambda: consumer.poll(0.1) is not None, 60, "the member has a record")
        found = ask(admin, group)[group]
    assert [one.progress for one in found.partitions] == [NothingCommitted(), NothingCommitted()]


def test_a_commit_beyond_the_end_is_no_zero(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """A topic that was deleted and made anew is shorter than the group's commit: that is said, not hidden as 0."""
    topic, group = topic_prefix + "events", topic_prefix + "billing"
    fill(broker, admin, topic, partitions=1, records=3)
    commit(admin, group, topic, {0: 50})
    (found,) = ask(admin, group)[group].partitions
    assert (found.progress, found.lag) == (BeyondEnd(50), None)


def test_only_the_groups_asked_for(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """Patterns choose groups on the real broker."""
    topic = topic_prefix + "events"
    fill(broker, admin, topic, partitions=1, records=1)
    for name in ("a", "b", "b-test"):
        commit(admin, topic_prefix + name, topic, {0: 1})
    assert set(ask(admin, topic_prefix + "*", exclude=("*-test",))) == {topic_prefix + "a", topic_prefix + "b"}


def test_a_deleted_topic_leaves_no_ghost(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """When a topic is deleted its partitions have no lag any more, and the group's other topic still has."""
    kept, deleted, group = topic_prefix + "kept", topic_prefix + "deleted", topic_prefix + "billing"
    for topic in (kept, deleted):
        fill(broker, admin, topic, partitions=1, records=4)
        commit(admin, group, topic, {0: 1})
    assert {one.topic for one in ask(admin, group)[group].partitions} == {kept, deleted}
    admin.delete_topics([deleted])[deleted].result(30)
    wait_until(lambda: {one.topic for one in ask(admin, group)[group].partitions} == {kept}, 60, "the ghost is gone")


def test_a_broker_that_is_away_is_said() -> None:
    """No broker: an error that can be retried, within the request's limit."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(BrokerAwayError):
        Asker(admin, timeout=2, stopping=lambda: False).ask(Patterns())


def test_a_stop_does_not_wait_for_the_broker() -> None:
    """A stop that is asked for while no broker answers ends the asking long before its limit."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(StoppedError):
        Asker(admin, timeout=600, stopping=lambda: True).ask(Patterns())


def test_the_collector_keeps_lag_in_the_store_and_stops_in_order(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """The command's process writes the known lag into the store, says when it is ready, and ends with 0 on SIGTERM."""
    topic, group = topic_prefix + "events", topic_prefix + "billing"
    fill(broker, admin, topic, partitions=1, records=100)
    commit(admin, group, topic, {0: 30})
    store, ready, log = f"local:{tmp_path / 'store.db'}", tmp_path / "ready", tmp_path / "log"
    program = (
        "import sys; from pathlib import Path\n"
        "from tallystream.aggregator.sinks.stores import StoreSettings\n"
        "from tallystream.dashboards.lag.collect import CollectSettings, run\n"
        "servers, store, ready, include = sys.argv[1:]\n"
        "sys.exit(run(CollectSettings(bootstrap_servers=servers, store=StoreSettings.parse(store), interval=1,"
        " include=(include,), ready_file=Path(ready))))"
    )
    arguments = [broker.bootstrap_servers, store, str(ready), topic_prefix + "*"]
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=output, stderr=output)
    reader = open_reader(StoreSettings.parse(store))
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "the first round went through")
        assert process.poll() is None, log.read_text()

        def lags() -> list[object]:
            found = reader.read(LAG, ["lag"], start_ms=0, end_ms=2**62, tags={"group": group, "topic": topic})
            return found[0].values if found else []

        assert set(lags()) == {70}
        commit(admin, group, topic, {0: 95})
        wait_until(lambda: lags()[-1] == 5, 60, "the commit is seen")
    finally:
        reader.close()
        process.terminate()
        code = process.wait(30)
    assert code == 0, log.read_text()
