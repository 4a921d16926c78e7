"""The demonstration's OpenTelemetry metrics on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.kafka import read_topic
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.demo.otlp_metrics import OtlpMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message
    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration


def counts(records: Sequence[bytes | None]) -> list[tuple[int, int]]:
    """Return the start time and the value of `flights.processed` in each record that has it."""
    found = []
    for value in records:
        (resource,) = pb.MetricsData.FromString(value or b"").resource_metrics
        (scope,) = resource.scope_metrics
        for metric in scope.metrics:
            if metric.name == "flights.processed":
                (point,) = metric.sum.data_points
                found.append((point.start_time_unix_nano, point.as_int))
    return found


def test_every_publish_and_the_end_write_a_record(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """A record has all counts of the process so far, and the key of its instance. The next process starts at 0.

    What was counted after the last publish is exported at the end.
    """
    topic = f"{topic_prefix}otlp"
    create_topics(admin, Topics(topic_prefix, (topic,)))
    batch: list[Message] = [None] * 5  # type: ignore[list-item]  # only their number matters
    for _ in range(2):
        with OtlpMetrics(broker.bootstrap_servers, "app-2", topic) as metrics:
            for _ in range(2):
                metrics.processed(batch, [-3, 0, 12], 0.5)
                assert metrics.publish(timeout_s=30)
            metrics.processed(batch, [], 0.5)
    records = read_topic(broker.bootstrap_servers, topic)
    found = counts([record.value for record in records])
    assert [count for _, count in found] == [5, 10, 15, 5, 10, 15]
    starts = [start for start, _ in found]
    assert starts[0] == starts[2] < starts[3] == starts[5]
    assert [len(key) for key in {record.key for record in records if record.key}] == [16]
    temporality = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
    (resource,) = pb.MetricsData.FromString(records[-1].value or b"").resource_metrics
    delay = next(metric for metric in resource.scope_metrics[0].metrics if metric.name == "flights.delay")
    assert delay.exponential_histogram.aggregation_temporality == temporality
    by_direction = {
        point.attributes[0].value.string_value: (point.count, point.sum)
        for point in delay.exponential_histogram.data_points
    }
    assert by_direction == {"late": (4, 24), "early": (2, 6)}
