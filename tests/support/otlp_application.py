"""An application with the OpenTelemetry SDK, configured by OTEL_* variables. It counts and exports until it is killed.

All recorded values are integers, so the sums of histograms are exact. It counts from when the process ID is collected:
so every export has the ID, which an export that has begun before would lack.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View

PID = "process.pid"
"""A gauge with the process ID, which distinguishes the processes of an instance."""


def main() -> None:
    """Count and record until SIGKILL."""
    explicit = View(instrument_name="size", aggregation=ExplicitBucketHistogramAggregation((10.0, 100.0, 500.0)))
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], views=[explicit])
    meter, other_scope = provider.get_meter("shop"), provider.get_meter("shop.payment", "1.2")
    collected = threading.Event()

    def read_pid(_: CallbackOptions) -> Iterable[Observation]:
        collected.set()
        yield Observation(os.getpid())

    meter.create_observable_gauge(PID, [read_pid])
    collected.wait()
    requests, same_name = meter.create_counter("requests"), other_scope.create_counter("requests")
    active, size, latency = (
        meter.create_up_down_counter("active"),
        meter.create_histogram("size"),
        meter.create_histogram("latency"),
    )
    chance = random.Random(os.getpid())
    begin = time.monotonic()
    while True:
        route = chance.choice(["/", "/cart"])
        attributes: dict[str, str | int] = {"route": route, "status": chance.choice([200, 500])}
        requests.add(chance.randrange(1_000), attributes)
        same_name.add(1, attributes)
        active.add(chance.choice([-1, 1, 2]), {"pool": chance.choice("ab")})
        size.record(chance.randrange(1_000), {"route": route})
        latency.record(chance.randrange(1, 100_000))
        if time.monotonic() - begin > 1:
            meter.create_counter("late").add(1)  # a later start of a stream is no restart
        time.sleep(0.002)


if __name__ == "__main__":
    main()
