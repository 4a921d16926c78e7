"""The attributes of each metric as `dump_metrics` names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream.reporter.pyformance_compat.meters.counter import Counter
from tallystream.reporter.pyformance_compat.meters.gauge import Gauge
from tallystream.reporter.pyformance_compat.meters.histogram import Histogram
from tallystream.reporter.pyformance_compat.meters.meter import Meter
from tallystream.reporter.pyformance_compat.meters.timer import Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.reporter.pyformance_compat.stats.snapshot import Snapshot


def _counter(counter: Counter) -> dict[str, Any]:
    return {"count": counter.get_count()}


def _gauge(gauge: Gauge) -> dict[str, Any]:
    return {"value": gauge.get_value()}


def _rates(metric: Meter | Timer) -> dict[str, Any]:
    return {
        "15m_rate": metric.get_fifteen_minute_rate(),
        "5m_rate": metric.get_five_minute_rate(),
        "1m_rate": metric.get_one_minute_rate(),
        "mean_rate": metric.get_mean_rate(),
    }


def _meter(meter: Meter) -> dict[str, Any]:
    return {"count": meter.get_count(), **_rates(meter)}


def _spread(metric: Histogram | Timer) -> dict[str, Any]:
    return {
        "count": metric.get_count(),
        "max": metric.get_max(),
        "min": metric.get_min(),
        "std_dev": metric.get_stddev(),
    }


def _percentiles(kept: Snapshot) -> dict[str, Any]:
    return {
        "75_percentile": kept.get_75th_percentile(),
        "95_percentile": kept.get_95th_percentile(),
        "99_percentile": kept.get_99th_percentile(),
        "999_percentile": kept.get_999th_percentile(),
    }


def _histogram(histogram: Histogram) -> dict[str, Any]:
    return {"avg": histogram.get_mean(), **_spread(histogram), **_percentiles(histogram.get_snapshot())}


def _timer(timer: Timer) -> dict[str, Any]:
    kept = timer.get_snapshot()
    return {
        "avg": timer.get_mean(),
        "sum": timer.get_sum(),
        **_spread(timer),
        **_rates(timer),
        "50_percentile": kept.get_median(),
        **_percentiles(kept),
    }


VALUES: tuple[tuple[type[Any], Callable[[Any], dict[str, Any]]], ...] = (
    (Counter, _counter),
    (Histogram, _histogram),
    (Meter, _meter),
    (Timer, _timer),
    (Gauge, _gauge),
)
"""Each metric class with what reads it, in the order in which a later one's attribute replaces an earlier one's."""
