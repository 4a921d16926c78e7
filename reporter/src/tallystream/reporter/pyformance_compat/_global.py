"""The global registry, and the functions that ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream.reporter.pyformance_compat._metrics_registry import MetricsRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.reporter.pyformance_compat.meters.counter import Counter
    from tallystream.reporter.pyformance_compat.meters.gauge import Gauge
    from tallystream.reporter.pyformance_compat.meters.histogram import Histogram
    from tallystream.reporter.pyformance_compat.meters.meter import Meter
    from tallystream.reporter.pyformance_compat.meters.timer import Timer


class _Global:
    registry = MetricsRegistry()


def global_registry() -> MetricsRegistry:
    """Return the registry that the functions and decorators use."""
    return _Global.registry


def set_global_registry(registry: MetricsRegistry) -> None:
    """Have the functions and decorators use this registry from now on."""
    _Global.registry = registry


def counter(key: str, tags: Mapping[str, object] | None = None) -> Counter:
    """Return the global registry's counter of this key and tags."""
    return _Global.registry.counter(key, tags)


def histogram(key: str, tags: Mapping[str, object] | None = None) -> Histogram:
    """Return the global registry's histogram of this key and tags."""
    return _Global.registry.histogram(key, tags)


def meter(key: str, tags: Mapping[str, object] | None = None) -> Meter:
    """Return the global registry's meter of this key and tags."""
    return _Global.registry.meter(key, tags)


def timer(key: str, tags: Mapping[str, object] | None = None) -> Timer:
    """Return the global registry's timer of this key and tags."""
    return _Global.registry.timer(key, tags)


def gauge(key: str, gauge: Gauge | Callable[[], Any] | None = None, tags: Mapping[str, object] | None = None) -> Any:
    """Return the global registry's gauge of this key and tags; see `MetricsRegistry.gauge`."""
    return _Global.registry.gauge(key, gauge, tags=tags)


def dump_metrics() -> dict[str, dict[str, Any]]:
    """Return the values of all metrics of the global registry, by key and attribute."""
    return _Global.registry.dump_metrics()


def clear() -> None:
    """Forget all metrics of the global registry."""
    _Global.registry.clear()
