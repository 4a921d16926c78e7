"""The metrics of the consumer application through the OpenTelemetry SDK, which exports them to Kafka.

An application usually exports to an OpenTelemetry Collector, whose Kafka exporter writes to the topic. The Collector
is another program, which need not be installed for the demonstration. So this exporter writes what the Collector would.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException, Message
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource

from tallystream_aggregator.kafka import clients
from tallystream_cli.demo.app_metrics import APP, DELAY, DIRECTION, DURATION, EARLY, IN_FLIGHT, LATE, PROCESSED

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERVAL_MS = 10_000


class KafkaMetricExporter(MetricExporter):
    """Writes metrics as the Collector's Kafka exporter does: a record in protobuf for each resource, with acks=all.

    `failures` is the number of exports that failed or were not acknowledged in time. The SDK does not tell an
    application whether an export succeeded.
    """

    def __init__(self, bootstrap_servers: str, topic: str, client_id: str) -> None:
        super().__init__(preferred_aggregation={Histogram: ExponentialBucketHistogramAggregation()})
        self.failures = 0
        self._topic = topic
        self._producer = clients.producer(
            {"bootstrap.servers": bootstrap_servers, "client.id": client_id, "acks": "all", "linger.ms": 0}
        )

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> MetricExportResult:
        """Write a record for each resource, and wait until the broker has acknowledged it."""
        acknowledged = False
        try:
            acknowledged = self._write(metrics_data, timeout_millis / 1000)
        finally:  # the SDK logs an exception and goes on
            self.failures += not acknowledged
        return MetricExportResult.SUCCESS if acknowledged else MetricExportResult.FAILURE

    def _write(self, metrics_data: MetricsData, timeout_s: float) -> bool:
        errors: list[str] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                errors.append(error.str())

        try:
            for resource in encode_metrics(metrics_data).resource_metrics:
                value = pb.MetricsData(resource_metrics=[resource]).SerializeToString()
                self._producer.produce(self._topic, value=value, key=_key(resource), on_delivery=delivered)
            if self._producer.flush(timeout_s):
                errors.append("no answer in time")
        except (KafkaException, BufferError) as error:
            errors.append(str(error))
        if errors:
            sys.stderr.write(f"export failed: {errors[0]}\n")
        return not errors

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Return whether all records are acknowledged."""
        return self._producer.flush(timeout_millis / 1000) == 0

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:  # noqa: ARG002 (named by the SDK)
        """Close the producer. `export` has waited for its records, and told which were not acknowledged."""
        self._producer.purge()  # else close() waits five minutes for an unavailable broker
        self._producer.close()


def _key(resource: pb.ResourceMetrics) -> bytes:
    """Return a hash of the resource's attributes, as with `partition_metrics_by_resource_attributes`."""
    return hashlib.blake2b(resource.resource.SerializeToString(deterministic=True), digest_size=16).digest()


class OtlpMetrics:
    """Instruments of the OpenTelemetry SDK. They are exported every ten seconds, after each batch, and at the end."""

    def __init__(self, bootstrap_servers: str, instance: str, topic: str) -> None:
        self._exporter = KafkaMetricExporter(bootstrap_servers, topic, instance)
        self._provider = MeterProvider(
            [PeriodicExportingMetricReader(self._exporter, INTERVAL_MS, export_timeout_millis=INTERVAL_MS)],
            Resource({"service.name": APP, "service.instance.id": instance}),
            shutdown_on_exit=False,
        )
        meter = self._provider.get_meter(__name__)
        self._counter = meter.create_counter(PROCESSED)
        self._delay = meter.create_histogram(DELAY, unit="min")
        self._duration = meter.create_histogram(DURATION, unit="s")
        self._in_flight = meter.create_gauge(IN_FLIGHT)
        self._in_flight.set(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._provider.shutdown()  # exports a last time

    def in_flight(self, events: int) -> None:
        """Set the number of events that are being processed."""
        self._in_flight.set(events)

    def processed(self, messages: Sequence[Message], delays: Sequence[int], seconds: float) -> None:
        """Count a batch."""
        for delay in delays:
            self._delay.record(abs(delay), {DIRECTION: EARLY if delay < 0 else LATE})
        self._duration.record(seconds)
        self._counter.add(len(messages))

    def publish(self, timeout_s: float) -> bool:
        """Export, and return whether the broker has acknowledged it in time."""
        failures = self._exporter.failures
        self._provider.force_flush(timeout_s * 1000)
        return self._exporter.failures == failures
