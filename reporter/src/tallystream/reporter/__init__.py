"""Tallystream's reporter: metrics counted in the process, published to Kafka, summed exactly over instances.

    from tallystream.reporter import KafkaReporter, MetricRegistry
    registry = MetricRegistry("orders")
    processed = registry.counter("records.processed")
    reporter = KafkaReporter(registry, bootstrap_servers="localhost:9092", instance="orders-1").start()
    processed.inc()

Importing it imports no Kafka client: that happens when a `KafkaReporter` begins to report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.reporter.console import ConsoleReporter, LoggingReporter
from tallystream.reporter.counter import Counter, UpDown
from tallystream.reporter.environment import report
from tallystream.reporter.errors import ConfigError, TallystreamError
from tallystream.reporter.gauge import Gauge
from tallystream.reporter.gauges import derived, ratio
from tallystream.reporter.graphite import GraphiteReporter
from tallystream.reporter.histogram import Histogram
from tallystream.reporter.influx import InfluxReporter
from tallystream.reporter.jsonlines import JsonLinesReporter
from tallystream.reporter.kafka import KafkaReporter
from tallystream.reporter.meter import Meter
from tallystream.reporter.position import Position
from tallystream.reporter.progress import ConsumerProgress
from tallystream.reporter.registry import MetricRegistry, MetricTypeError
from tallystream.reporter.sampling import ExponentiallyDecaying, Sampling, SlidingTimeWindow, SlidingWindow, Uniform
from tallystream.reporter.timer import Timer

__all__ = [
    "ConfigError",
    "ConsoleReporter",
    "ConsumerProgress",
    "Counter",
    "ExponentiallyDecaying",
    "Gauge",
    "GraphiteReporter",
    "Histogram",
    "InfluxReporter",
    "JsonLinesReporter",
    "KafkaReporter",
    "LoggingReporter",
    "Meter",
    "MetricRegistry",
    "MetricTypeError",
    "Position",
    "Sampling",
    "SlidingTimeWindow",
    "SlidingWindow",
    "TallystreamError",
    "Timer",
    "Uniform",
    "UpDown",
    "derived",
    "ratio",
    "report",
]

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version  # slow to import, and seldom needed

        return version("tallystream-reporter")
