"""The contract of all reporters: each of them passes the same tests, the Kafka reporter with a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.kafka import read_topic
from support.reporters import BENCHES, Bench, Graphite, Influx
from support.wait import wait_until
from tallystream import ConfigError, KafkaReporter, MetricRegistry
from tallystream.record import Counter, decode
from tallystream.reporters.scheduled import ScheduledReporter
from tallystream.testing import assert_count
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker


class Kafka(Bench):
    """The bench of the Kafka reporter. Its broken destination is a topic that does not exist."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.servers, self.topic = broker.bootstrap_servers, topic
        self.reporters: list[KafkaReporter] = []

    def make(self, registry: MetricRegistry, **options: Any) -> ScheduledReporter:
        # By default, the client waits half a minute for a topic that does not exist, because it may be new.
        given = {"topic.metadata.propagation.max.ms": 1000, **options.pop("options", {})}
        reporter = KafkaReporter(
            registry, bootstrap_servers=self.servers, instance="i-1", topic=self.topic, options=given, **options
        )
        self.reporters.append(reporter)
        return reporter

    def lines(self) -> list[str]:
        """Return a line for each metric of each snapshot."""
        snapshots = [decode(read.value) for read in read_topic(self.servers, self.topic) if read.value]
        return [
            f"{metric.name} {metric.type} count={metric.count if isinstance(metric, Counter) else None}"
            for snapshot in snapshots
            for metric in snapshot.metrics
        ]

    def break_destination(self) -> None:
        """Send to a topic that does not exist."""
        for reporter in self.reporters:
            reporter.topic = self.topic + "-missing"

    def repair_destination(self) -> None:
        """Send to the topic that exists."""
        for reporter in self.reporters:
            reporter.topic = self.topic


@pytest.fixture(params=[*BENCHES, pytest.param("kafka", marks=pytest.mark.integration)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "kafka":
        broker, topics = request.getfixturevalue("broker"), Topics(request.getfixturevalue("topic_prefix"))
        create_topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), topics)
        bench: Bench = Kafka(broker, topics.metrics)
    else:
        bench = BENCHES[request.param](tmp_path)
    make, reporters = bench.make, list[ScheduledReporter]()

    def remember(registry: MetricRegistry, **options: Any) -> ScheduledReporter:
        reporters.append(make(registry, **options))
        return reporters[-1]

    bench.make = remember  # type: ignore[method-assign]
    yield bench
    for reporter in reporters:
        reporter.stop(timeout=5)
    bench.close()


@pytest.fixture
def registry() -> MetricRegistry:
    return MetricRegistry("app")


def test_report_now_delivers_every_metric_that_has_a_value(bench: Bench, registry: MetricRegistry) -> None:
    """True means that the current values of metrics of every type were delivered. A metric without a value is not."""
    registry.counter("orders.count").inc(3)
    registry.updown("orders.open").dec()
    registry.gauge("orders.queue", lambda: 7.5)
    registry.gauge("orders.unset")
    registry.meter("orders.rate").mark()
    registry.histogram("orders.size").update(4)
    registry.timer("orders.time").update(0.25)
    registry.position("orders", 0).advance(3, 9)
    reporter = bench.make(registry)
    assert reporter.report_now(timeout=60)
    registry.counter("orders.count").inc()
    assert reporter.report_now(timeout=60)
    assert bench.counts("orders.count") == [3, 4]
    text = "\n".join(bench.lines())
    for name in ("orders.open", "orders.queue", "orders.rate", "orders.size", "orders.time", "consumer.position"):
        assert name in text
    assert "orders.unset" not in text


def test_stopping_makes_one_last_report(bench: Bench, registry: MetricRegistry) -> None:
    """The end of a `with` block makes one last report. A second stop() makes none, and start() works again."""
    counter = registry.counter("c")
    with bench.make(registry, interval=3600) as reporter:
        counter.inc(5)
    assert bench.counts("c") == [5]
    assert reporter.stop()
    assert bench.counts("c") == [5]
    counter.inc(2)
    reporter.start()
    assert reporter.stop()
    # The Kafka reporter continues with a new life, which counts from zero. The others publish the total count.
    assert bench.counts("c") == [5, 2 if isinstance(bench, Kafka) else 7]


def test_reports_use_the_current_name_of_the_registry(bench: Bench, registry: MetricRegistry) -> None:
    """After a registry is renamed, reports have only the new name."""
    registry.counter("c").inc()
    reporter = bench.make(registry, own_metrics=False)
    registry.app = "renamed"
    assert reporter.report_now(timeout=60)
    assert bench.counts("c") == [1]
    if isinstance(bench, Graphite | Influx):
        assert all("app=renamed" in line for line in bench.lines())


def test_a_failed_report_does_not_prevent_the_next_one(bench: Bench, registry: MetricRegistry) -> None:
    """A failed report returns False and is counted with its reason, and later reports are delivered."""
    counter = registry.counter("c")
    reporter = bench.make(registry, own_metrics=True)
    counter.inc()
    assert reporter.report_now(timeout=60)
    bench.break_destination()
    counter.inc()
    assert not reporter.report_now(timeout=60)
    assert reporter.failures == 1
    assert reporter.last_error
    bench.repair_destination()
    assert reporter.report_now(timeout=60)
    assert bench.counts("c") == [1, 2]
    assert_count(registry, "tallystream.reporter.failed", 1, tags={"reporter": reporter.kind})
    assert_count(registry, "tallystream.reporter.sent", 2, tags={"reporter": reporter.kind})


def test_a_started_reporter_reports_on_its_schedule(bench: Bench, registry: MetricRegistry) -> None:
    """A started reporter reports repeatedly from a daemon thread."""
    counter = registry.counter("c")
    counter.inc()
    with bench.make(registry, interval=0.02, own_metrics=True) as reporter:
        sent = registry.counter("tallystream.reporter.sent", tags={"reporter": reporter.kind})
        wait_until(lambda: sent.count >= 3, 60, "three reports arrived")
        threads = [
            thread for thread in threading.enumerate() if thread.name == f"tallystream-{type(reporter).__name__}"
        ]
        assert [thread.daemon for thread in threads] == [True]
    assert len(bench.counts("c")) >= 3


def test_only_selected_metrics_are_reported(bench: Bench, registry: MetricRegistry) -> None:
    """`include` and `exclude` are patterns of metric names."""
    for name in ("orders.one", "orders.two", "other"):
        registry.counter(name).inc()
    reporter = bench.make(registry, include=["orders.*"], exclude=["*.two"])
    assert reporter.report_now(timeout=60)
    assert [bench.counts(name) for name in ("orders.one", "orders.two", "other")] == [[1], [], []]


@pytest.mark.parametrize(
    ("options", "field"),
    [({"interval": 0}, "interval"), ({"include": "orders"}, "include"), ({"exclude": [""]}, "exclude")],
)
def test_an_invalid_option_is_named(
    bench: Bench, registry: MetricRegistry, options: dict[str, Any], field: str
) -> None:
    """The error names the option, and the registry has no metrics of the rejected reporter."""
    with pytest.raises(ConfigError) as caught:
        bench.make(registry, own_metrics=True, **options)
    assert caught.value.field == field
    assert registry.metrics() == []
