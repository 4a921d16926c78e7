"""OTLP metrics with the real OpenTelemetry SDK, a Collector with the configuration of docs/otlp.md, Kafka and Spark."""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka.admin import NewTopic
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.aggregator import Aggregator
from support.collector import Collector, documented_config, find_or_build
from support.commands import run
from support.exactness import dead_letters
from support.kafka import end_offsets, latest_sums, read_topic
from support.otlp_application import PID
from support.shipping import shipper
from support.wait import wait_until
from tallystream import KafkaReporter, MetricRegistry
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.servers.process import Server, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.sums import Sum
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

QUANTILES = {0.5: "p50", 0.75: "p75", 0.95: "p95", 0.98: "p98", 0.99: "p99", 0.999: "p999"}
Tags = tuple[tuple[str, str], ...]
Series = tuple[str, Tags]


class Point(NamedTuple):
    """A data point of an OTLP topic, and where it comes from."""

    kind: str
    instance: str
    scope: str
    name: str
    tags: Tags
    data: Any

    @property
    def series(self) -> Series:
        """The name and the attributes."""
        return self.name, self.tags


def read_points(servers: str, topic: str) -> list[Point]:
    """Return every data point of the topic, decoded without the code of the aggregator."""
    points = []
    for record in read_topic(servers, topic):
        for resource in pb.MetricsData.FromString(record.value or b"").resource_metrics:
            instance = dict(_tags(resource.resource.attributes)).get("service.instance.id", "")
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data") or ""
                    data = getattr(metric, kind)
                    if kind == "sum":
                        kind = "counter" if data.is_monotonic else "updown"
                    if kind not in {"gauge", "summary"}:
                        assert data.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_CUMULATIVE
                    name = scope.scope.name + "\0" + scope.scope.version
                    points += [
                        Point(kind, instance, name, metric.name, _tags(one.attributes), one) for one in data.data_points
                    ]
    return points


def _tags(attributes: Any) -> Tags:
    values = ((one.key, getattr(one.value, one.value.WhichOneof("value"))) for one in attributes)
    return tuple(sorted((key, str(value)) for key, value in values))


def newest(points: list[Point]) -> list[Point]:
    """Return the latest point of each stream. A stream has an instance, a scope, a series and a start time.

    An up-down counter has no start time here: the newest process replaces the earlier ones.
    """
    streams: dict[Any, Point] = {}
    for point in points:
        start_ns = 0 if point.kind in {"updown", "gauge"} else point.data.start_time_unix_nano
        stream = (point.kind, point.instance, point.scope, point.series, start_ns)
        if stream not in streams or streams[stream].data.time_unix_nano < point.data.time_unix_nano:
            streams[stream] = point
    return list(streams.values())


def expected_sums(points: list[Point]) -> dict[tuple[str, str, Tags], dict[str, float]]:
    """Return the fields that the sums must have, by type, name and tags, from the newest points."""
    sums: dict[tuple[str, str, Tags], dict[str, float]] = defaultdict(Counter)
    for kind, _, _, name, tags, data in points:
        if kind == "counter":
            sums["counter", name, tags]["count"] += data.as_int
        elif kind == "updown":
            sums["updown", name, tags]["sum"] += data.as_int
        elif kind in {"histogram", "exponential_histogram"}:
            fields = sums["histogram", name, tags]
            fields["min"] = min(fields.get("min", math.inf), data.min)
            fields["max"] = max(fields.get("max", -math.inf), data.max)
            fields["count"] += data.count
            fields["sum"] += data.sum
        if kind == "histogram":
            for number, bound in enumerate(data.explicit_bounds):
                bucket = tuple(sorted((*tags, ("le", repr(bound)))))
                sums["counter", name + ".bucket", bucket]["count"] += sum(data.bucket_counts[: number + 1])
    return dict(sums)


def assert_quantiles(row: Sum, points: list[Point]) -> None:
    """Check that each quantile of the sum is in the right bucket of the histogram of all processes."""
    scale = min(point.data.scale for point in points)
    buckets: Counter[int] = Counter()
    for point in points:
        assert not point.data.zero_count
        assert not any(point.data.negative.bucket_counts)
        for index, count in enumerate(point.data.positive.bucket_counts, point.data.positive.offset):
            buckets[index >> (point.data.scale - scale)] += count
    total = sum(buckets.values())
    base = 2.0 ** (2.0**-scale)
    for quantile, field in QUANTILES.items():
        value = getattr(row, field)
        below = sum(count for index, count in buckets.items() if base ** (index + 1) < value * (1 - 1e-9))
        up_to = sum(count for index, count in buckets.items() if base**index <= value * (1 + 1e-9))
        assert below <= math.ceil(quantile * total) <= up_to + 1, (field, value, below, up_to, total)


class Application(Server):
    """tests/support/otlp_application.py as a process."""

    def __init__(self, folder: Path, instance: str, url: str) -> None:
        super().__init__(folder / f"{instance}.log", stop_timeout_s=20)
        self.instance = instance
        self._env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "cumulative",
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
            "OTEL_SERVICE_NAME": "orders",
            "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={instance}",
        }

    def start(self) -> Self:
        """Start it without waiting."""
        program = Path(__file__).parents[1] / "support" / "otlp_application.py"
        self._process = spawn([sys.executable, str(program)], self.log, self._env)
        return self


def exported(servers: str, topic: str) -> dict[str, set[int]]:
    """Return the IDs of the processes that have records in the topic, by instance."""
    found: dict[str, set[int]] = defaultdict(set)
    for point in read_points(servers, topic):
        if point.name == PID:
            found[point.instance].add(point.data.as_int)
    return found


def restarts(servers: str, topics: Topics) -> dict[str, int]:
    """Return the number of restart events by instance."""
    rows = [json.loads(record.value or b"") for record in read_topic(servers, topics.events)]
    return dict(Counter(row["instance"] for row in rows if row["kind"] == "restart"))


@pytest.fixture
def binary() -> Path:
    """The Collector."""
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    return found.path


@pytest.fixture
def otlp_topic(admin: AdminClient, topic_prefix: str) -> str:
    """A topic of two partitions for OTLP metrics."""
    name, topics = f"{topic_prefix}otlp", Topics(topic_prefix)
    admin.create_topics([NewTopic(name, 2, 1, config=dict(policies(topics)[topics.metrics]))])[name].result(30)
    return name


def test_sums_are_what_the_sdk_counted_through_kills_of_applications_and_the_collector(
    broker: KafkaBroker, topic_prefix: str, otlp_topic: str, binary: Path, tmp_path: Path
) -> None:
    """While two SDK applications and the Collector are killed at random, each sum equals the newest points in Kafka.

    Counts, sums, buckets and quantiles agree with a decoder of the test. An application that is killed and exports
    again is one restart event. No record is a dead letter, and verify agrees.
    """
    servers, topics, chance = broker.bootstrap_servers, Topics(topic_prefix), random.Random(8)
    collector = Collector(tmp_path / "otelcol", binary, config=documented_config(servers, otlp_topic))
    applications = [Application(tmp_path, instance, collector.url) for instance in ("orders-1", "orders-4")]

    def has_exported(application: Application) -> Callable[[], bool]:
        return lambda: application.pid in exported(servers, otlp_topic)[application.instance]

    options = ("--otlp-topic", otlp_topic)
    with (
        Aggregator(servers, topic_prefix, tmp_path, *options) as aggregator,
        collector,
        applications[0],
        applications[1],
    ):
        aggregator.start().wait_ready()
        victims: list[Server] = [*applications * 3, *[collector] * 3]
        chance.shuffle(victims)
        for victim in victims:
            if isinstance(victim, Application) and chance.random() < 0.6:
                wait_until(has_exported(victim), 60, "the application has exported")
            time.sleep(chance.uniform(0, 1.5))
            victim.kill()
            time.sleep(chance.choice([0, 0.7]))
            victim.start()
        for application in applications:
            wait_until(has_exported(application), 60, "the application has exported")
            application.kill()
        collector.stop()
        aggregator.wait_committed(otlp_topic, end_offsets(servers, otlp_topic), 120, "the OTLP topic is summed")
        assert aggregator.stop() == 0, aggregator.output()
    assert all(end_offsets(servers, otlp_topic).values()), "each of the two partitions has records"
    last = newest(read_points(servers, otlp_topic))
    rows = {
        (kind, name, tags): row
        for (_, name, kind, tags), row in latest_sums(servers, topics.agg).items()
        if kind != "gauge"
    }
    wanted = expected_sums(last)
    assert {key: {field: getattr(row, field) for field in wanted.get(key, ())} for key, row in rows.items()} == wanted
    assert {name for _, name, _ in wanted} == {"requests", "active", "size", "size.bucket", "latency", "late"}
    assert_quantiles(rows["histogram", "latency", ()], [point for point in last if point.kind.startswith("exp")])
    processes = exported(servers, otlp_topic)
    assert restarts(servers, topics) == {instance: len(pids) - 1 for instance, pids in processes.items()}
    assert all(len(pids) >= 2 for pids in processes.values())
    assert dead_letters(broker, topics) == set()
    verified = run("verify", "--bootstrap-servers", servers, "--topic-prefix", topic_prefix, *options)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_sums_that_are_shipped_by_otlp_are_the_same_in_a_second_aggregator(
    broker: KafkaBroker, topic_prefix: str, otlp_topic: str, binary: Path, tmp_path: Path
) -> None:
    """After reporter, aggregator, shipper, Collector and Kafka, a second aggregator has the application's counts.

    Histograms have the same counts and sums. Each of three reports arrives before the next one.
    """
    servers, first, second = broker.bootstrap_servers, Topics(topic_prefix), Topics(f"{topic_prefix}second-")
    registry, folder = MetricRegistry("orders"), tmp_path / "first"
    folder.mkdir()
    wanted: dict[tuple[str, str, Tags], Any] = {}
    with (
        Aggregator(servers, topic_prefix, folder) as aggregator,
        Collector(tmp_path / "otelcol", binary, config=documented_config(servers, otlp_topic)) as collector,
    ):
        aggregator.start().wait_ready()
        with (
            KafkaReporter(
                registry, bootstrap_servers=servers, instance="i-1", topic=first.metrics, own_metrics=False
            ) as reporter,
            shipper(servers, topic_prefix, tmp_path, StoreSettings.parse(f"otlp:{collector.url}", env={})),
        ):
            for step in range(1, 4):
                for number, route in enumerate(("/", "/cart")):
                    counter = registry.counter("requests", {"route": route})
                    counter.inc(10**step + number)
                    wanted["counter", "requests", (("route", route),)] = counter.count
                registry.histogram("size").update(step)
                wanted["histogram", "size", ()] = (step, sum(range(step + 1)))
                assert reporter.report_now(timeout=30)
                wait_until(lambda: shipped_counts(servers, otlp_topic) == wanted, 120, "the sums are in the OTLP topic")
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


def counts(servers: str, topics: Topics) -> dict[tuple[str, str, Tags], Any]:
    """Return the count of each counter, and the count and the sum of each histogram, on `metrics-agg`."""
    rows = latest_sums(servers, topics.agg).items()
    return _counts(
        (kind, name, tags, row.count if kind == "counter" else (row.count, row.sum))
        for (_, name, kind, tags), row in rows
    )


def shipped_counts(servers: str, topic: str) -> dict[tuple[str, str, Tags], Any]:
    """Return the same values from the newest points in an OTLP topic."""
    return _counts(
        ("histogram", point.name, point.tags, (point.data.count, point.data.sum))
        if point.kind == "summary"
        else (point.kind, point.name, point.tags, point.data.as_int)
        for point in newest(read_points(servers, topic))
    )


def _counts(values: Iterable[tuple[str, str, Tags, Any]]) -> dict[tuple[str, str, Tags], Any]:
    """Return the counts by type, name and tags, without the tag that the sink adds."""
    return {
        (kind, name, tuple(tag for tag in tags if tag[0] != "metric_type")): value
        for kind, name, tags, value in values
        if kind in {"counter", "histogram"}
    }
