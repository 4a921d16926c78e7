"""pyformance's API with Tallystream's metrics: change one import, and pass the registry to any Tallystream reporter.

    from tallystream import pyformance_compat as pyformance
    from tallystream import report

    pyformance.counter("records").inc()
    report("orders", registry=pyformance.global_registry())

docs/pyformance.md lists what is different from pyformance 0.4.
"""

from __future__ import annotations

import logging

from tallystream.log_throttle import RateLimitFilter
from tallystream.pyformance_compat import meters, registry, reporters, stats
from tallystream.pyformance_compat.registry import (
    MetricsRegistry,
    RegexRegistry,
    clear,
    count_calls,
    counter,
    dump_metrics,
    gauge,
    global_registry,
    histogram,
    meter,
    meter_calls,
    set_global_registry,
    time_calls,
    timer,
)

__all__ = [
    "MetricsRegistry",
    "RegexRegistry",
    "clear",
    "count_calls",
    "counter",
    "dump_metrics",
    "gauge",
    "global_registry",
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
