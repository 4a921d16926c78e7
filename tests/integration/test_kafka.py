"""The Kafka helpers of the aggregator on a real broker, without Spark."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, NewTopic
from msgspec.structs import replace

from support.kafka import append_to_ledger, committed
from support.kafka import read_topic as read_for_tests
from tallystream_aggregator.jobs.aggregate.settings import GROUP
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.groups import GroupCommitter
from tallystream_aggregator.kafka.lease import Lease, LeaseError
from tallystream_aggregator.kafka.reader import read_topic
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics, create_topics, policies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_topics_that_a_broker_created_on_first_use_get_their_policies(admin: AdminClient, topic_prefix: str) -> None:
    """Policies that such a topic lacks are set, once; those that a user has set are kept."""
    topics, day = Topics(topic_prefix), str(86_400_000)
    created = [
        NewTopic(topics.metrics, 1, 1),
        NewTopic(topics.agg, 1, 1),
        NewTopic(topics.dead, 1, 1, config={"retention.ms": day}),
    ]
    for future in admin.create_topics(created).values():
        future.result()
    for _ in range(2):
        create_topics(admin, topics, correct=True)
        wanted = policies(topics)
        wanted[topics.dead]["retention.ms"] = day
        del wanted[topics.shards]
        for name, config in wanted.items():
            resource = ConfigResource(ConfigResource.Type.TOPIC, name)
            found = admin.describe_configs([resource])[resource].result()
            assert {key: found[key].value for key in config} == config


def test_a_topic_that_is_no_longer_read_leaves_the_group(
    broker: KafkaBroker, topics: Topics, topic_prefix: str
) -> None:
    """Its offset is deleted, so that it shows no lag; the other offsets stay, and it can be committed again."""
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


def test_the_group_begins_where_a_new_table_begins(broker: KafkaBroker, admin: AdminClient, topics: Topics) -> None:
    """An earlier table had read more, and another topic. The lag is that of the new table from its begin on."""
    servers, group = broker.bootstrap_servers, topics.prefix + GROUP
    kafka, other = {"bootstrap.servers": servers}, topics.metrics + "-other"
    admin.create_topics([NewTopic(other, 1, 1)])[other].result()
    producer = Producer(kafka)
    for _ in range(5):
        producer.produce(topics.metrics, key=b"k", value=b"{}")
    assert producer.flush(30) == 0
    committer = GroupCommitter(kafka, group)
    committer.commit({topics.metrics: {"0": 5}, other: {"0": 3}})
    committer.close()
    committer = GroupCommitter(kafka, group)
    assert committer.keep(Selection(topics.metrics).reads, topic=topics.metrics) == {other: {"0": 3}}
    committer.begin({topics.metrics: {"0": 0}})
    committer.close()
    assert [committed(servers, group, topic) for topic in (topics.metrics, other)] == [0, -1001]


@contextmanager
def writing(servers: str, topic: str) -> Iterator[None]:
    """Append a record every 20 ms. A fetch of librdkafka waits longer, so it never reaches the end."""
    producer = Producer({"bootstrap.servers": servers})
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.02):
            producer.produce(topic, key=b"k", value=b'{"epoch":2}')
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(10)


def test_a_topic_that_keeps_growing_is_read_to_its_end(broker: KafkaBroker, topics: Topics) -> None:
    """Every reader returns with all records that existed when it started, while more are appended."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(50):
        producer.produce(topics.agg, key=b"k", value=b'{"epoch":2}')
    producer.flush(30)
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    with writing(broker.bootstrap_servers, topics.agg):
        assert len(list(read_topic(topics.agg, kafka))) >= 50
        assert len(read_for_tests(broker.bootstrap_servers, topics.agg)) >= 50


def never() -> bool:
    """Return False: no stop is requested."""
    return False


def test_the_lease_has_one_holder_and_passes_to_the_next(broker: KafkaBroker, topics: Topics) -> None:
    """A second aggregator is refused while the first holds the lease; a standby gets it when it is released."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    first = Lease(topics.ledger, kafka, prefix=topics.prefix)
    first.join()
    assert first.wait(standby=False, stopped=never)
    second = Lease(topics.ledger, kafka, prefix=topics.prefix)
    second.join()
    now = [0.0]

    def seconds() -> float:
        now[0] += 0.3  # three times as fast as the polls that pass it
        first.check()
        return now[0]

    second._clock = seconds
    with pytest.raises(LeaseError, match="another aggregator still has it"):
        second.wait(standby=False, stopped=never)
    first.check()
    first.close()
    second._clock = time.monotonic
    assert second.wait(standby=True, stopped=never)
    second.close()


def test_a_stop_ends_the_wait_for_the_lease(broker: KafkaBroker, topics: Topics) -> None:
    """A standby that is stopped returns without the lease."""
    lease = Lease(topics.ledger, {"bootstrap.servers": broker.bootstrap_servers}, prefix=topics.prefix)
    lease.join()
    assert not lease.wait(standby=True, stopped=lambda: True)
    lease.close()


def test_without_the_lease_an_aggregator_continues_until_a_higher_generation_is_in_the_ledger(
    broker: KafkaBroker, topics: Topics
) -> None:
    """After an outage of the broker the lease has no holder. Only a successor ends the aggregator."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    lease = Lease(topics.ledger, kafka, prefix=topics.prefix, clock=iter(range(0, 1000, 10)).__next__)
    lease.set_generation(4)
    opened = ledger.LedgerRow(kind="opened", generation=4, ts=1)
    append_to_ledger(broker.bootstrap_servers, topics.ledger, opened)
    lease.check()
    append_to_ledger(broker.bootstrap_servers, topics.ledger, replace(opened, generation=5))
    with pytest.raises(LeaseError, match="took over with generation 5, ours was 4"):
        lease.check()
    lease.close()
