"""The lag of consumer groups, asked of a real broker."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.commands import command
from support.wait import wait_until
from tallystream_aggregator.kafka.ledger import LedgerRow, LedgerWriter
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader
from tallystream_cli.servers.process import free_port
from tallystream_dashboards.lag import LAG, Behind, BeyondEnd, GroupLag, NothingCommitted
from tallystream_dashboards.lag.collector.kafka_admin import BrokerUnavailableError, OffsetFetcher, StoppedError
from tallystream_dashboards.lag.collector.record_timestamps import Prober
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.spark_offsets import Ledgers
from tallystream_dashboards.lag.collector.tracker import LagTracker
from tallystream_dashboards.lag.model import Probed
from tallystream_dashboards.lag.reader import read_groups
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.time_lag import Zero, at_least

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

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
    """Ask until the broker answers without a problem: a broker that has just started still loads its coordinator."""
    deadline = time.monotonic() + 30
    while (asked := OffsetFetcher(admin, timeout=30, stopping=lambda: False).ask(Patterns(include, exclude))).problems:
        assert time.monotonic() < deadline, asked.problems
        time.sleep(0.5)
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
    """A topic that was deleted and created again is shorter than the group's commit: that is said, not hidden as 0."""
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
    with pytest.raises(BrokerUnavailableError):
        OffsetFetcher(admin, timeout=2, stopping=lambda: False).ask(Patterns())


def test_a_stop_does_not_wait_for_the_broker() -> None:
    """A stop that is asked for while no broker answers ends the asking long before its limit."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(StoppedError):
        OffsetFetcher(admin, timeout=600, stopping=lambda: True).ask(Patterns())


def test_a_group_says_its_state(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """The broker's own word for a group with a member, and for one without."""
    topic, group = topic_prefix + "events", topic_prefix + "billing"
    fill(broker, admin, topic, partitions=1, records=3)
    with member(broker, group, topic) as consumer:
        read = consumer.consume(3, timeout=60)
        consumer.commit(read[-1], asynchronous=False)
        assert ask(admin, group)[group].state == "Stable"
    assert ask(admin, group)[group].state == "Empty"


def test_the_ledger_stands_in_where_nothing_is_committed(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str
) -> None:
    """A Spark job that writes to the ledger has lag without a consumer group; a further commit wins."""
    topic, own = topic_prefix + "events", topic_prefix + "tallystream-aggregator"
    fill(broker, admin, topic, partitions=2, records=10)
    commit(admin, own, topic, {0: 8})
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    for query, ends in (("enrich", {"0": 4}), ("aggregate", {"0": 6, "1": 9})):
        row = LedgerRow(kind="batch", query=query, epoch=1, batch=1, ts=1, end={topic: ends})
        LedgerWriter(topics.ledger, kafka).write([row])
    ledgers = Ledgers(topics.ledger, kafka, prefix=topic_prefix)
    try:
        wait_until(lambda: len(ledgers.offsets() or {}) == 2, 60, "the ledger is read")
        asker = OffsetFetcher(admin, timeout=30, stopping=lambda: False)
        found = asker.ask(Patterns((topic_prefix + "*", "ledger:*")), ledgers.offsets())
    finally:
        ledgers.close()
    progress = {group.group: [one.progress for one in group.partitions] for group in found.groups}
    assert progress == {own: [Behind(8, 2), Behind(9, 1)], "ledger:enrich": [Behind(4, 6), NothingCommitted()]}


def test_a_clock_that_is_off_is_shown_as_skew(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """A producer an hour ahead: the collector says so, and the age of the lag is what it was."""
    topic, group = topic_prefix + "events", topic_prefix + "billing"
    fill(broker, admin, topic, partitions=1, records=3)
    commit(admin, group, topic, {0: 3})
    now, ahead_ms = time.time(), 3_600_000
    asker = OffsetFetcher(admin, timeout=30, stopping=lambda: False, clock=lambda: now)
    watch = LagTracker(asker, Patterns((group,)), Rules(), clock=lambda: now)
    assert watch.sample().states[0].skew_ms is None
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"early", timestamp=round(time.time() * 1000) + ahead_ms)
    assert producer.flush(30) == 0
    now += 31
    (state,) = watch.sample().states
    assert state.skew_ms is not None
    assert ahead_ms - 60_000 < state.skew_ms <= ahead_ms
    assert at_least(state.seconds) <= 31


def test_offsets_that_hold_no_record_are_told_from_lag(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str
) -> None:
    """After a transaction there is a marker at the end: nothing to read. A record that waits has its own timestamp."""
    topic = topic_prefix + "events"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic_prefix + "tx"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"one", timestamp=1_700_000_000_000)
    producer.commit_transaction(30)
    waiting, done = topic_prefix + "waiting", topic_prefix + "done"
    commit(admin, waiting, topic, {0: 0})
    commit(admin, done, topic, {0: 1})
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    prober = Prober(kafka, seconds=30, stopping=lambda: False)
    found = {}
    for _ in range(2):  # a reader has one position in a partition: the other offset is read in the next round
        found |= prober.probe({((topic, 0), 0), ((topic, 0), 1)}).get((topic, 0), {})
    assert found == {0: Probed(1_700_000_000_000), 1: Probed(None, nothing=True)}
    asker = OffsetFetcher(admin, timeout=30, stopping=lambda: False)
    probe = Prober(kafka, seconds=30, stopping=lambda: False).probe
    watch = LagTracker(asker, Patterns((done,)), Rules(), clock=time.time, probe=probe)
    (state,) = watch.sample().states
    assert (state.lag, state.seconds, state.evaluation.status) == (1, Zero(), Status.OK)
    assert "transaction markers" in state.partitions[0].evaluation.reason


def test_the_collector_keeps_lag_in_the_store_and_stops_in_order(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """The command keeps lag in the store and serves it, marks a group that is deleted, and ends with 0 on SIGTERM."""
    topic, group, doomed = topic_prefix + "events", topic_prefix + "billing", topic_prefix + "doomed"
    fill(broker, admin, topic, partitions=1, records=100)
    commit(admin, group, topic, {0: 30})
    commit(admin, doomed, topic, {0: 90})
    spec, ready, log, port = f"local:{tmp_path / 'store.db'}", tmp_path / "ready", tmp_path / "log", free_port()
    arguments = ["lag", "collect", "--bootstrap-servers", broker.bootstrap_servers, "--store", spec]
    arguments += ["--interval", "1", "--include", topic_prefix + "*", "--ready-file", str(ready)]
    arguments += ["--http-port", str(port), "--record-timestamps"]
    with log.open("wb") as output:
        process = subprocess.Popen(command(*arguments), stdout=output, stderr=output)

    def served(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def told(path: str = "") -> dict[str, Any]:
        return json.loads(served(f"/v1/groups{path}"))

    reader = open_reader(StoreSettings.parse(spec))
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "the first round went through")
        assert process.poll() is None, log.read_text()
        assert {one["group"]: one["lag"] for one in told()["groups"]} == {group: 70, doomed: 10}
        assert f'kafka_consumergroup_group_sum_lag{{group="{group}"}} 70' in served("/metrics")
        assert json.loads(served("/readyz")) == {"ok": True}
        commit(admin, group, topic, {0: 95})
        wait_until(lambda: told("/" + group)["lag"] == 5, 60, "the commit is seen")
        (partition,) = told("/" + group)["partitions"]
        assert (partition["committed"], partition["end"], partition["lag"]) == (95, 100, 5)
        wait_until(lambda: told("/" + group)["partitions"][0]["record_ms"], 60, "the record's timestamp is read")
        admin.delete_consumer_groups([doomed])[doomed].result(30)
        wait_until(lambda: told("/" + doomed)["gone"], 60, "the group is found to be gone")
        now_ms = round(time.time() * 1000)
        wait_until(
            lambda: (
                [(s.group, s.gone) for s in read_groups(reader, at_ms=now_ms + 60_000)]
                == [(doomed, True), (group, False)]
            ),
            60,
            "the store says the same",
        )
        found = reader.read(LAG, ["lag"], start_ms=0, end_ms=2**62, tags={"group": group, "topic": topic})
        assert [found[0].values[0], found[0].values[-1]] == [70, 5]
    finally:
        reader.close()
        process.terminate()
        code = process.wait(30)
    assert code == 0, log.read_text()
