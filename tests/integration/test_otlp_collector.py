"""OTLP metrics with real parts: OpenTelemetry's SDKs, a Collector as docs/otlp.md configures it, Kafka and Spark."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec import Raw
from msgspec.json import decode as json_decode
from msgspec.json import encode as json_encode
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.aggregator import Aggregator
from support.collector import Collector, documented_config
from support.commands import run
from support.exactness import dead_letters
from support.kafka import end_offsets, latest_sums, read_topic
from support.otlp import counter, encode, number, resource_metrics
from support.otlp_application import PID
from support.otlp_applications import Application, compile_java, find_javac, java_application, python_application
from support.shipping import shipper
from support.wait import wait_until
from tallystream import KafkaReporter, MetricRegistry, record
from tallystream.metrics.sketch import Sketch
from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_aggregator.sinks.http import OTLP_EXPONENTIAL, OTLP_HISTOGRAMS
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import Server

Tags = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """A data point of an OTLP topic."""

    instance: str
    name: str
    data: Any

    @property
    def count(self) -> int:
        """The count of a histogram, or the number."""
        return int(self.data.count if hasattr(self.data, "count") else self.data.as_int)


def read_resources(servers: str, topic: str) -> Iterator[list[Point]]:
    """Yield the data points of each resource of the topic: decoded by this code, without the aggregator's."""
    for read in read_topic(servers, topic):
        for resource in pb.MetricsData.FromString(read.value or b"").resource_metrics:
            attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
            points = []
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                found = getattr(metric, metric.WhichOneof("data") or "").data_points
                points += [Point(attributes.get("service.instance.id", ""), metric.name, one) for one in found]
            yield points


def read_points(servers: str, topic: str) -> list[Point]:
    """Return every data point of the topic."""
    return [point for points in read_resources(servers, topic) for point in points]


def exported(servers: str, topic: str) -> dict[str, set[int]]:
    """Return the IDs of the processes that have exported a count, by instance. Gauges alone tell of no restart."""
    found: dict[str, set[int]] = defaultdict(set)
    for points in read_resources(servers, topic):
        if any(point.name not in (PID, "active") for point in points):
            for point in (point for point in points if point.name == PID):
                found[point.instance].add(point.count)
    return found


pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def restarts(servers: str, topics: Topics) -> dict[str, int]:
    """Return the number of restart events by instance."""
    rows = [json.loads(record.value or b"") for record in read_topic(servers, topics.events)]
    return dict(Counter(row["instance"] for row in rows if row["kind"] == "restart"))


@pytest.fixture
def otlp_topic(admin: AdminClient, topic_prefix: str) -> str:
    """A topic of two partitions for OTLP metrics."""
    name, topics = f"{topic_prefix}otlp", Topics(topic_prefix)
    admin.create_topics([NewTopic(name, 2, 1, config=dict(policies(topics)[topics.metrics]))])[name].result(30)
    return name


def test_sums_are_what_the_sdk_counted_through_kills_of_applications_and_the_collector(
    broker: KafkaBroker, topic_prefix: str, otlp_topic: str, collector_binary: Path, tmp_path: Path
) -> None:
    """Twelve kills, at random, of applications in Python and Java and of the Collector: the sums are exact.

    Verify, which has a decoder of its own, agrees with each of them. An application that is killed and exports again is
    one restart event. Nothing is refused.
    """
    if find_javac() is None:
        pytest.skip("there is no javac: install a JDK, for example the package openjdk-17-jdk-headless")
    classes = compile_java(tmp_path / "classes")
    servers, topics, chance = broker.bootstrap_servers, Topics(topic_prefix), random.Random(8)
    collector = Collector(tmp_path / "otelcol", collector_binary, config=documented_config(servers, otlp_topic))
    applications = [python_application(tmp_path, instance, collector.url) for instance in ("orders-1", "orders-4")]
    applications.append(java_application(tmp_path, "orders-java", collector.url, classes))

    def wait_exported(application: Application) -> None:
        def has_exported() -> bool:
            return application.pid in exported(servers, otlp_topic)[application.instance]

        wait_until(has_exported, 60, f"{application.instance} has exported")

    options = ("--otlp-topic", otlp_topic)
    with (
        Aggregator(servers, topic_prefix, tmp_path, *options) as aggregator,
        collector,
        applications[0],
        applications[1],
        applications[2],
    ):
        aggregator.start().wait_ready()
        victims: list[Server] = [*applications * 3, *[collector] * 3]
        chance.shuffle(victims)
        for victim in victims:
            if isinstance(victim, Application) and chance.random() < 0.6:
                wait_exported(victim)
            time.sleep(chance.uniform(0, 1.5))
            victim.kill()
            time.sleep(chance.choice([0, 0.7]))
            victim.start()
        for application in applications:
            wait_exported(application)
            application.kill()
        collector.stop()
        aggregator.wait_committed(otlp_topic, end_offsets(servers, otlp_topic), 120, "the OTLP topic is summed")
        assert aggregator.stop() == 0, aggregator.output()
    assert all(end_offsets(servers, otlp_topic).values()), "each of the two partitions has records"
    names = {name for _, name, kind, _ in latest_sums(servers, topics.agg) if kind not in ("gauge", INSTANCES)}
    # The SDK for Java counts its exports, too.
    own = {name for name in names if not name.startswith("otlp.")}
    assert own == {"requests", "active", "size", "latency", "late"}
    processes = exported(servers, otlp_topic)
    assert restarts(servers, topics) == {instance: len(pids) - 1 for instance, pids in processes.items()}
    assert all(len(pids) >= 2 for pids in processes.values())
    assert dead_letters(broker, topics) == set()
    verified = run("verify", "--bootstrap-servers", servers, "--topic-prefix", topic_prefix)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_an_export_above_the_limit_of_a_record_arrives_in_several(
    broker: KafkaBroker, otlp_topic: str, collector_binary: Path, tmp_path: Path
) -> None:
    """An application exports 2.4 MB at once: the Collector divides it, and every point arrives in a record of Kafka."""
    servers, wanted = broker.bootstrap_servers, {f"requests.{n}".ljust(200, "x") for n in range(10_000)}
    body = encode(resource_metrics([counter(name, number(1)) for name in wanted], service__instance__id="large"))
    assert len(body) > 2_000_000
    with Collector(tmp_path / "otelcol", collector_binary, config=documented_config(servers, otlp_topic)) as collector:
        headers = {"Content-Type": "application/x-protobuf"}
        response = urllib3.request("POST", f"{collector.url}/v1/metrics", body=body, headers=headers)
        assert response.status == 200, response.data
        wait_until(lambda: {point.name for point in read_points(servers, otlp_topic)} == wanted, 60, "all arrived")
    assert max(len(one.value or b"") for one in read_topic(servers, otlp_topic)) < 1_000_000


def test_sums_that_are_shipped_by_otlp_are_the_same_in_a_second_aggregator(
    broker: KafkaBroker, topic_prefix: str, otlp_topic: str, collector_binary: Path, tmp_path: Path
) -> None:
    """After reporter, aggregator, shipper, Collector and Kafka, a second aggregator has the application's counts.

    Histograms have the same counts, sums and buckets. Each of three reports arrives before the next one.
    """
    servers, first, second = broker.bootstrap_servers, Topics(topic_prefix), Topics(f"{topic_prefix}second-")
    registry, folder = MetricRegistry("orders"), tmp_path / "first"
    folder.mkdir()
    wanted: dict[tuple[str, str, Tags], Any] = {}
    env, values = {OTLP_HISTOGRAMS: OTLP_EXPONENTIAL}, Sketch()
    with (
        Aggregator(servers, topic_prefix, folder) as aggregator,
        Collector(tmp_path / "otelcol", collector_binary, config=documented_config(servers, otlp_topic)) as collector,
    ):
        aggregator.start().wait_ready()
        with (
            KafkaReporter(
                registry, bootstrap_servers=servers, instance="i-1", topic=first.metrics, own_metrics=False
            ) as reporter,
            shipper(servers, topic_prefix, tmp_path, StoreSettings.parse(f"otlp:{collector.url}", env=env)),
        ):
            total = 0.0
            for step in range(1, 4):
                for place, route in enumerate(("/", "/cart")):
                    requests = registry.counter("requests", {"route": route})
                    requests.inc(10**step + place)
                    wanted["counter", "requests", (("route", route),)] = requests.count
                for value in (0.0, 0.25**step, 3.5 * step, 10.0**step):
                    registry.histogram("size").update(value)
                    values.add([value])
                    total += value
                wanted["histogram", "size", ()] = (4 * step, total, buckets(Raw(json_encode(values.encode()))))
                assert reporter.report_now(timeout=30)
                due = {(name, value[0] if name == "size" else value) for (_, name, _), value in wanted.items()}
                wait_until(lambda: due <= shipped(servers, otlp_topic), 120, "it is in the OTLP topic")  # noqa: B023
        assert aggregator.stop() == 0, aggregator.output()
    again = tmp_path / "second"
    done = run(
        *("aggregate", "--bootstrap-servers", servers, "--topic-prefix", second.prefix, "--checkpoint", str(again)),
        *("--catch-up", "--otlp-topic", otlp_topic),
    )
    assert done.returncode == 0, done.stderr
    assert counts(servers, first) == wanted
    assert counts(servers, second) == wanted
    assert dead_letters(broker, second) == set()


def shipped(servers: str, topic: str) -> set[tuple[str, int]]:
    """Return the name and the count of each point in an OTLP topic."""
    return {(point.name, point.count) for point in read_points(servers, topic)}


def counts(servers: str, topics: Topics) -> dict[tuple[str, str, Tags], Any]:
    """Return the count of each counter, and the count, the sum and the buckets of each histogram, on `metrics-agg`.

    They lack the tag that the sink adds.
    """
    return {
        (kind, name, tuple(tag for tag in tags if tag[0] != "metric_type")): (
            (row.count, row.sum, buckets(row.sketch)) if kind == "histogram" else row.count
        )
        for (_, name, kind, tags), row in latest_sums(servers, topics.agg).items()
        if kind in {"counter", "histogram"}
    }


def buckets(sketch: Raw) -> tuple[Any, ...]:
    """Return the scale, the zeros and the buckets of a sketch without negative values."""
    one = Sketch.decode(json_decode(sketch, type=record.Sketch))
    assert not one.negative.counts
    return one.scale, one.zeros, one.positive.offset, one.positive.counts.tolist()
