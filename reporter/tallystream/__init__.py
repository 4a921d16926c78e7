"""Tallystream's reporter: metrics of a process, published to Kafka and summed exactly over instances.

    from tallystream import KafkaReporter, MetricRegistry
    registry = MetricRegistry("orders")
    processed = registry.counter("records.processed")
    reporter = KafkaReporter(registry, bootstrap_servers="localhost:9092", instance="orders-1").start()
    processed.inc()

Importing this package does not import the Kafka client: a `KafkaReporter` imports it when it starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.config import report
from tallystream.errors import ConfigError, DuplicateReporterError, TallystreamError
from tallystream.instrumentation.decorators import LogRecordCounter, count_exceptions, counted, timed
from tallystream.instrumentation.default import counter, default_registry, gauge, histogram, meter, timer, updown
from tallystream.kafka.reporter import KafkaReporter
from tallystream.metrics.counter import Counter, UpDownCounter
from tallystream.metrics.gauge import Gauge
from tallystream.metrics.histogram import Histogram
from tallystream.metrics.meter import Meter
from tallystream.metrics.position import Position
from tallystream.metrics.timer import Timer
from tallystream.progress import ConsumerProgress, ProducerProgress
from tallystream.registry import MetricRegistry, MetricTypeError
from tallystream.reporters.graphite import GraphiteReporter
from tallystream.reporters.influx import InfluxReporter
from tallystream.reporters.text import ConsoleReporter, JsonLinesReporter, LoggingReporter

__all__ = [
    "ConfigError",
    "ConsoleReporter",
    "ConsumerProgress",
    "Counter",
    "DuplicateReporterError",
    "Gauge",
    "GraphiteReporter",
    "Histogram",
    "InfluxReporter",
    "JsonLinesReporter",
    "KafkaReporter",
    "LogRecordCounter",
    "LoggingReporter",
    "Meter",
    "MetricRegistry",
    "MetricTypeError",
    "Position",
    "ProducerProgress",
    "TallystreamError",
    "Timer",
    "UpDownCounter",
    "count_exceptions",
    "counted",
    "counter",
    "default_registry",
    "gauge",
    "histogram",
    "meter",
    "report",
    "timed",
    "timer",
    "updown",
]

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version  # slow to import, and rarely needed

        return version("tallystream")
