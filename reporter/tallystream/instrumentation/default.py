"""The default registry: for metrics of modules that are imported before the application starts its reporter.

The first `tallystream.report("orders")` reports it, under this name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.record import DEFAULT_APP
from tallystream.registry import MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.metrics.counter import Counter, UpDownCounter
    from tallystream.metrics.gauge import Gauge
    from tallystream.metrics.histogram import Histogram
    from tallystream.metrics.meter import Meter
    from tallystream.metrics.sampling import Sampling
    from tallystream.metrics.timer import Timer

_registry = MetricRegistry(DEFAULT_APP)


def default_registry() -> MetricRegistry:
    """Return the default registry. There is one in each process; `report()` reports it and names its app."""
    return _registry


def counter(name: str, tags: Mapping[str, str] | None = None) -> Counter:
    """Return a counter of the default registry. All functions raise what the methods of a registry raise."""
    return _registry.counter(name, tags)


def updown(name: str, tags: Mapping[str, str] | None = None) -> UpDownCounter:
    """Return an up-down counter of the default registry."""
    return _registry.updown(name, tags)


def gauge(
    name: str,
    function: Callable[[], float | None] | None = None,
    *,
    cached_for: float | None = None,
    tags: Mapping[str, str] | None = None,
) -> Gauge:
    """Return a gauge of the default registry. If `function` is given, it computes the value from now on.

    With `cached_for`, the function is called at most once in that many seconds.
    """
    return _registry.gauge(name, function, cached_for=cached_for, tags=tags)


def meter(name: str, tags: Mapping[str, str] | None = None) -> Meter:
    """Return a meter of the default registry."""
    return _registry.meter(name, tags)


def histogram(name: str, tags: Mapping[str, str] | None = None, *, sampling: Sampling | None = None) -> Histogram:
    """Return a histogram of the default registry. `sampling` replaces the registry's."""
    return _registry.histogram(name, tags, sampling=sampling)


def timer(name: str, tags: Mapping[str, str] | None = None, *, sampling: Sampling | None = None) -> Timer:
    """Return a timer of the default registry. `sampling` replaces the registry's."""
    return _registry.timer(name, tags, sampling=sampling)
