"""The default registry: for metrics of modules that are imported before the application starts its reporter.

The first `tallystream.report("orders")` reports it, under this name. `tallystream.counter` and its siblings are its
methods.
"""

from __future__ import annotations

from tallystream.record import DEFAULT_APP
from tallystream.registry import MetricRegistry

_registry = MetricRegistry(DEFAULT_APP)


def default_registry() -> MetricRegistry:
    """Return the default registry. There is one in each process; `report()` reports it and names its app."""
    return _registry


counter, updown, gauge = _registry.counter, _registry.updown, _registry.gauge
meter, histogram, timer = _registry.meter, _registry.histogram, _registry.timer
