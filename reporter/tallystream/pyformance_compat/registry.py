"""All names of pyformance's module `registry`: the registries, their functions and the decorators."""

from __future__ import annotations

from tallystream.pyformance_compat._registry import (
    MetricsRegistry,
    RegexRegistry,
    clear,
    counter,
    dump_metrics,
    gauge,
    global_registry,
    histogram,
    meter,
    set_global_registry,
    timer,
)
from tallystream.pyformance_compat.decorators import count_calls, get_qualname, hist_calls, meter_calls, time_calls
from tallystream.pyformance_compat.meters import CallbackGauge, Counter, Gauge, Histogram, Meter, SimpleGauge, Timer

__all__ = [
    "CallbackGauge",
    "Counter",
    "Gauge",
    "Histogram",
    "Meter",
    "MetricsRegistry",
    "RegexRegistry",
    "SimpleGauge",
    "Timer",
    "clear",
    "count_calls",
    "counter",
    "dump_metrics",
    "gauge",
    "get_qualname",
    "global_registry",
    "hist_calls",
    "histogram",
    "meter",
    "meter_calls",
    "set_global_registry",
    "time_calls",
    "timer",
]
