"""The bridge to the OpenTelemetry SDK.

Pass the `reader` of the source to the MeterProvider, and the source to the registry.
"""

from __future__ import annotations

import base64
import json
from math import isfinite
from typing import TYPE_CHECKING, Any

from tallystream import record
from tallystream.bridges.base import Reading, to_integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

SCOPE = "otel.scope.name"
"""The tag with the name of the meter, as in OpenTelemetry's Prometheus exporter."""


class OpenTelemetrySource:
    """Reads the metrics of the `MeterProvider` that has `source.reader`, with cumulative temporality.

    - A monotonic sum becomes a counter, rounded down to a whole number. Other sums become updowns.
    - A gauge becomes a gauge.
    - A histogram, explicit or exponential, becomes a histogram with count, sum, min and max, without a sketch.
    - Attributes become tags: text unchanged, bytes in base64, other values as JSON (`true` for True). The meter's name
      is the tag `otel.scope.name`. Resource attributes are skipped, since they belong to the whole process.
    - Counts and histograms of one name with the same tags are added up: of two versions of a meter, for example.

        source = OpenTelemetrySource()
        metrics.set_meter_provider(MeterProvider(metric_readers=[source.reader]))
        registry.add_source(source)

    Other readers of the same provider are not affected. Values stay readable after the provider's `shutdown()`.

    Raises:
        ImportError: opentelemetry-sdk (1.30 or later) is not installed.
    """

    kind = "opentelemetry"

    def __init__(self) -> None:
        from opentelemetry.sdk import metrics
        from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

        kinds: list[type] = [
            *(metrics.Counter, metrics.UpDownCounter, metrics.Histogram),
            *(metrics.ObservableCounter, metrics.ObservableUpDownCounter, metrics.ObservableGauge),
        ]
        # With delta temporality, increments would be lost if two reporters read the same registry.
        cumulative = dict.fromkeys(kinds, AggregationTemporality.CUMULATIVE)
        self.reader: InMemoryMetricReader = InMemoryMetricReader(preferred_temporality=cumulative)

    def read(self) -> Iterator[Reading]:
        """Return the current metrics, or none before a provider has the reader."""
        data = self.reader.get_metrics_data()
        if data is None:
            return
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                meter = str(scope.scope)
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        attributes = point.attributes or {}
                        tags = {SCOPE: scope.scope.name, **_tags(attributes)}
                        # The tags lack the version and the attributes of the meter, and the types of the attributes.
                        stream = f"{meter} {sorted(map(str, attributes.items()))}"
                        yield Reading(_converted(metric.name, tags, metric.data, point), _began(point), stream)


def _converted(name: str, tags: dict[str, str], data: Any, point: Any) -> record.Metric:
    if hasattr(point, "count"):
        return record.Histogram(
            name=name,
            tags=tags,
            count=point.count,
            sum=float(point.sum),
            min=_finite(point.min),
            max=_finite(point.max),
        )
    if not hasattr(data, "is_monotonic"):
        return record.Gauge(name=name, tags=tags, value=point.value)
    if data.is_monotonic:
        return record.Counter(name=name, tags=tags, count=to_integer(point.value))
    return record.UpDown(name=name, tags=tags, value=point.value)


def _finite(extreme: float | None) -> float | None:
    return extreme if extreme is not None and isfinite(extreme) else None  # infinite before there is a value


def _began(point: Any) -> float | None:
    start = point.start_time_unix_nano
    return start / 1e9 if start else None


def _tags(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in attributes.items()}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | int | float | list | tuple | dict):
        return json.dumps(value, default=_text)
    return str(value)  # the SDK accepts values of any type, such as a UUID or an Enum; since 1.45 it does this itself
