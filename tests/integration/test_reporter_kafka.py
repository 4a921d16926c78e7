"""The Kafka reporter with a real broker: acknowledgements, outages and threads."""

from __future__ import annotations

import threading

import pytest

from support.kafka import read_topic
from support.wait import wait_until
from tallystream import ConfigError, KafkaReporter, MetricRegistry
from tallystream.record import Counter, Snapshot, decode
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def read_snapshots(bootstrap_servers: str, topic: str) -> list[Snapshot]:
    """Return the snapshots of all records of the topic."""
    return [decode(one.value or b"") for one in read_topic(bootstrap_servers, topic)]


def counters(snapshot: Snapshot, name: str) -> list[Counter]:
    """Return the counters of this name in a snapshot."""
    return [metric for metric in snapshot.metrics if isinstance(metric, Counter) and metric.name == name]


def sum_of_lives(snapshots: list[Snapshot], name: str) -> int:
    """Sum a counter over lives, taking the highest seq of each."""
    newest: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        if snapshot.life not in newest or snapshot.seq > newest[snapshot.life].seq:
            newest[snapshot.life] = snapshot
    return sum(metric.count for snapshot in newest.values() for metric in counters(snapshot, name))


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.metrics


def test_acknowledged_records_follow_the_contract(broker: KafkaBroker, topic: str) -> None:
    """After report_now, stop and a second start, records have the key, seq, prev, final and counts of the contract."""
    registry = MetricRegistry("orders")
    processed = registry.counter("records.processed", tags={"topic": "orders"})
    reporter = KafkaReporter(
        registry, bootstrap_servers=broker.bootstrap_servers, instance="orders-1", interval=3600, topic=topic
    )
    with reporter:
        processed.inc(3)
        assert reporter.report_now(timeout=60)
        processed.inc(4)
        assert reporter.report_now()
        processed.inc()
    processed.inc(2)
    reporter.start()
    assert reporter.stop()
    records = read_topic(broker.bootstrap_servers, topic)
    snapshots = [decode(one.value or b"") for one in records]
    assert {one.key for one in records} == {b"orders-1"}
    assert [(s.seq, s.final, m.count) for s in snapshots for m in counters(s, processed.name)] == [
        (1, False, 3),
        (2, False, 7),
        (3, True, 8),
        (1, True, 2),
    ]
    assert [s.prev for s in snapshots] == [None, records[0].timestamp_ms, records[1].timestamp_ms, None]
    assert sum_of_lives(snapshots, "records.processed") == processed.count


def test_two_addresses_of_a_broker_are_one_destination(broker: KafkaBroker, topic: str) -> None:
    """A second reporter of the registry at another address of the cluster is refused before it sends anything."""
    registry = MetricRegistry("orders")
    port = broker.bootstrap_servers.rpartition(":")[2]
    one, two = (
        KafkaReporter(registry, bootstrap_servers=f"{host}:{port}", instance="i", interval=3600, topic=topic)
        for host in ("127.0.0.1", "localhost")
    )
    registry.counter("c").inc(3)
    assert one.report_now(timeout=60)
    with pytest.raises(ConfigError, match=f"another reporter reports it to '{topic}' of the same cluster"):
        two.report_now(timeout=60)
    assert one.stop()
    registry.counter("c").inc(1)
    assert two.report_now(timeout=60)
    assert two.stop()
    snapshots = read_snapshots(broker.bootstrap_servers, topic)
    assert sum_of_lives(snapshots, "c") == 4


def test_an_outage_of_the_broker_neither_blocks_nor_loses(broker: KafkaBroker, topic: str) -> None:
    """Updates and reports continue while the broker is down; afterwards the newest snapshot is sent without a call."""
    registry = MetricRegistry("orders")
    processed = registry.counter("c")
    with KafkaReporter(
        registry, bootstrap_servers=broker.bootstrap_servers, instance="i", interval=0.05, topic=topic
    ) as reporter:
        processed.inc()
        assert reporter.report_now(timeout=60)
        assert reporter.connected
        broker.kill()
        try:
            sent = reporter.sent
            for _ in range(1000):
                processed.inc()
            assert not reporter.report_now(timeout=1)
            assert not reporter.connected
            processed.inc()
        finally:
            broker.start()
        wait_until(lambda: reporter.sent >= sent + 3 and reporter.connected, 60, "the newest snapshots arrived")
        # If the broker took ten seconds to restart, there is one warning about that, and no other failure.
        assert (reporter.last_error or "no metrics have arrived").startswith("no metrics have arrived")
        assert reporter.failures <= 1
    snapshots = read_snapshots(broker.bootstrap_servers, topic)
    assert len({snapshot.life for snapshot in snapshots}) == 1
    assert sum_of_lives(snapshots, "c") == processed.count == 1002


def test_many_threads_can_call_report_now(broker: KafkaBroker, topic: str) -> None:
    """Threads count and call report_now at the same time: a record has the count of every call that returned True."""
    registry = MetricRegistry("orders")
    processed = registry.counter("c")
    outcomes = []
    with KafkaReporter(
        registry, bootstrap_servers=broker.bootstrap_servers, instance="i", interval=0.01, topic=topic
    ) as reporter:

        def work() -> None:
            for _ in range(10):
                processed.inc()
                outcomes.append(reporter.report_now(timeout=60))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == [True] * 40
    snapshots = read_snapshots(broker.bootstrap_servers, topic)
    assert [s.seq for s in snapshots] == list(range(1, len(snapshots) + 1))
    assert sum_of_lives(snapshots, "c") == 40
