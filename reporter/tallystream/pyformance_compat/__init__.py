"""pyformance's API with Tallystream's metrics: change one import, and pass the registry to any Tallystream reporter.

    from tallystream import KafkaReporter
    from tallystream import pyformance_compat as pyformance

    pyformance.counter("records").inc()
    registry = pyformance.global_registry()
    registry.app = "orders"
    KafkaReporter(registry, bootstrap_servers="localhost:9092", instance="orders-1").start()

docs/pyformance-differences.md lists the differences from pyformance 0.4.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tallystream.log_throttle import RateLimitFilter
from tallystream.pyformance_compat import meters, registry, stats
from tallystream.pyformance_compat.registry import (
    MetricsRegistry,
    RegexRegistry,
    clear,
    count_calls,
    counter,
    dump_metrics,
    gauge,
    global_registry,
    hist_calls,
    histogram,
    meter,
    meter_calls,
    set_global_registry,
    time_calls,
    timer,
)

if TYPE_CHECKING:
    from tallystream.pyformance_compat import reporters

    call_too_long: Any

__all__ = [
    "MetricsRegistry",
    "RegexRegistry",
    "call_too_long",
    "clear",
    "count_calls",
    "counter",
    "dump_metrics",
    "gauge",
    "global_registry",
    "hist_calls",
    "histogram",
    "meter",
    "meter_calls",
    "meters",
    "registry",
    "reporters",
    "set_global_registry",
    "stats",
    "time_calls",
    "timer",
]


# Messages about the same metric are logged at most once a minute.
logging.getLogger(__name__).addFilter(RateLimitFilter())


def __getattr__(name: str) -> Any:
    # Imported on first use: most programs need neither.
    if name == "reporters":
        from importlib import import_module

        return import_module(f"{__name__}.reporters")
    if name == "call_too_long":
        return meters.call_too_long
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
