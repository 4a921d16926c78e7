"""The public names of `__all__` and of the documented modules. A change of this list is a change for users."""

from __future__ import annotations

import importlib

import pytest

MODULES = {
    "tallystream": (
        "ConfigError ConsoleReporter ConsumerProgress Counter DuplicateReporterError Gauge "
        "GraphiteReporter Histogram InfluxReporter JsonLinesReporter KafkaReporter LogRecordCounter LoggingReporter "
        "Meter MetricRegistry "
        "MetricTypeError Position ProducerProgress TallystreamError Timer "
        "UpDownCounter count_exceptions counted counter default_registry gauge histogram meter report "
        "timed timer updown"
    ),
    "tallystream.testing": "InMemoryReporter ManualClock assert_count find",
    "tallystream.spark": "Monitor monitor",
    "tallystream.celery": "count_tasks",
    "tallystream.web": "AsgiMiddleware WsgiMiddleware",
    "tallystream.bridges.base": "Reading Source to_integer",
    "tallystream.bridges.opentelemetry": "OpenTelemetrySource",
    "tallystream.bridges.prometheus": "Collects PrometheusSource",
    "tallystream.pyformance_compat": (
        "MetricsRegistry RegexRegistry clear count_calls counter "
        "dump_metrics gauge global_registry histogram meter meter_calls meters registry reporters "
        "set_global_registry stats time_calls timer"
    ),
    "tallystream.pyformance_compat.meters": (
        "CallbackGauge Counter Gauge Histogram Meter SimpleGauge Timer TimerContext"
    ),
    "tallystream.pyformance_compat.reporters": ("CarbonReporter ConsoleReporter Reporter"),
    "tallystream.pyformance_compat.stats": ("ExpDecayingSample Snapshot"),
    "tallystream_aggregator.sinks": "Field Point PointReader Refused Series Sink SinkUnavailableError",
}


@pytest.mark.parametrize("module", MODULES)
def test_the_public_names_of_a_module(module: str) -> None:
    """Each documented module has these public names and no others."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None) or [
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    ]
    assert sorted(names) == MODULES[module].split()
