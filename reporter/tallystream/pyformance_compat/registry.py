"""The registries, the functions of the global one, and the decorators.

The decorators count, meter and time the calls of a function. The key is its qualified name and `_calls`.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from tallystream import record
from tallystream.baselines import add, by_identity
from tallystream.errors import ConfigError
from tallystream.metrics import gauge as gauge_module
from tallystream.metrics.calls import observe_calls
from tallystream.pyformance_compat.counters import log
from tallystream.pyformance_compat.meters import CallbackGauge, Counter, Gauge, Histogram, Meter, SimpleGauge, Timer
from tallystream.registry import MetricRegistry
from tallystream.validation import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream.metrics import base
    from tallystream.pyformance_compat.stats import Clock

M = TypeVar("M", Counter, Histogram, Meter, Timer, Gauge)
F = TypeVar("F", bound="Callable[..., Any]")
_CLASSES: tuple[type[Any], ...] = (Counter, Histogram, Meter, Timer, Gauge)
"""The order of a dump. If a key has metrics of several classes, attributes of later classes replace earlier ones."""

UNMATCHED = "(unmatched)"
"""The record's name of the key "", which a RegexRegistry uses for what its pattern does not match."""


class MetricsRegistry:
    """All metrics of an application, by key. Tallystream's reporters accept it: `KafkaReporter(registry, …)`.

    The methods that return a metric create it if it does not exist: there is one object in all threads. The same key
    may be used for metrics of several types.

    `tallystream` is the registry for Tallystream's reporters: it has these metrics, and those that are created in it.

    Args:
        clock: the source of the time, any object with `time()` in seconds; by default a monotonic clock.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._metrics: dict[type[Any], dict[str, Any]] = {kind: {} for kind in _CLASSES}
        # By class and key: what the cleared metrics have counted in, as a set in the order of the first clear().
        self._kept: dict[tuple[type[Any], str], dict[base.Metric, None]] = {}
        self.tallystream: MetricRegistry = _ReportedRegistry(self)

    def add(self, key: str, metric: Any) -> None:
        """Add a metric that was created elsewhere.

        Raises:
            LookupError: the registry has a metric of this class and key.
            TypeError: the object is not a metric.
        """
        kind = next((kind for kind in reversed(_CLASSES) if isinstance(metric, kind)), None)  # a Timer is a Histogram
        if kind is None:
            raise TypeError(f"Invalid class. Could not register metric {key!r}")
        if self._add(kind, key, metric) is not metric:
            raise LookupError(f"Metric {key!r} already registered")

    def counter(self, key: str) -> Counter:
        """Return the counter of this key."""
        return self._get(Counter, key, Counter)

    def histogram(self, key: str) -> Histogram:
        """Return the histogram of this key."""
        return self._get(Histogram, key, lambda: Histogram(clock=self._clock))

    def gauge(self, key: str, gauge: Gauge | Callable[[], Any] | None = None, default: Any = float("nan")) -> Any:
        """Return the gauge of this key. A new one is `gauge`, calls the function `gauge`, or is a SimpleGauge.

        Raises:
            TypeError: `gauge` is neither a gauge nor a function.
        """

        def make() -> Gauge:
            if gauge is None:
                return SimpleGauge(default)
            if isinstance(gauge, Gauge):
                return gauge
            if not callable(gauge):
                raise TypeError("gauge getter not callable")
            return CallbackGauge(gauge)

        return self._get(Gauge, key, make)

    def meter(self, key: str) -> Meter:
        """Return the meter of this key."""
        return self._get(Meter, key, lambda: Meter(clock=self._clock))

    def timer(self, key: str) -> Timer:
        """Return the timer of this key."""
        return self._get(Timer, key, lambda: Timer(clock=self._clock))

    def clear(self) -> None:
        """Remove all metrics. Their counts stay in the record, where a new metric of the same key continues them."""
        for kind, key, metric in self._members():
            if kind is not Gauge:
                self._kept.setdefault((kind, key), {}).setdefault(metric.tallystream)
            self._metrics[kind].pop(key, None)

    def get_metrics(self, key: str) -> dict[str, Any]:
        """Return the values of all metrics of a key, by attribute."""
        found = [self._metrics[kind].get(key) for kind in _CLASSES]
        dumps = [metric.tallystream_dump() for metric in found if metric is not None]
        return {name: value for dump in dumps for name, value in dump.items()}

    def dump_metrics(self) -> dict[str, dict[str, Any]]:
        """Return the values of all metrics, by key and attribute. Raises the errors of the functions of gauges."""
        return {key: self.get_metrics(key) for _, key, _ in self._members()}

    def _get(self, kind: type[M], key: str, make: Callable[[], M]) -> M:
        metric: M | None = self._metrics[kind].get(key)
        if metric is not None:
            return metric
        metric = make()
        kept = list(self._kept.get((kind, key), ()))
        if kept:
            metric.tallystream = kept[0]
        return self._add(kind, key, metric)

    def _add(self, kind: type[M], key: str, metric: M) -> M:
        # `setdefault` is atomic: threads, finalizers and signal handlers get the metric that was added first.
        added: M = self._metrics[kind].setdefault(key, metric)
        added.tallystream_name = key
        return added

    def _members(self) -> list[tuple[type[Any], str, Any]]:
        # Only a copy is atomic: a list of the items makes tuples, at which other threads and finalizers may run.
        return [(kind, key, metric) for kind in _CLASSES for key, metric in self._metrics[kind].copy().items()]

    def _report(self, *, views: bool) -> Iterator[record.Metric]:
        # Return the metrics as record structs. A clear() in another thread keeps a metric before it removes it, so what
        # is kept must be listed last. A metric of both is listed once.
        counting = {(key, metric.tallystream_reported()): None for _, key, metric in self._members()}
        counting |= {(key, metric): None for (_, key), kept in self._kept.copy().items() for metric in kept.copy()}
        for key, metric in counting:
            try:
                name = check_name("the name of a metric", str(key) or UNMATCHED)  # pyformance takes keys of any type
            except ConfigError as error:
                log.warning("%r is skipped in this snapshot: %s", key, error)
                continue
            value = metric.read() if isinstance(metric, gauge_module.Gauge) else metric.collect(views=views)
            if value is not None:
                value.name = name
                yield value

    def _reset_after_fork(self) -> None:
        for kept in self._kept.values():
            for metric in kept:
                metric.reset_after_fork()
        for _, _, metric in self._members():
            metric.tallystream_reset()


class RegexRegistry(MetricsRegistry):
    r"""A registry that builds the key from the groups of a pattern, joined by `/`.

    With `^/api/(\w+)/\d+/(\w+)?$`, /api/users/1/edit and /api/users/2/edit both have the key users/edit. A key that the
    pattern does not match becomes "".

    Args:
        pattern: a regular expression.
        clock: as in MetricsRegistry.
    """

    def __init__(self, pattern: str | None = None, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.pattern = re.compile("^$" if pattern is None else pattern)

    def _get(self, kind: type[M], key: str, make: Callable[[], M]) -> M:
        groups = (group for match in self.pattern.finditer(key) for group in match.groups() if group)
        return super()._get(kind, "/".join(groups), make)


class _ReportedRegistry(MetricRegistry):
    """The registry for reporters: its own metrics, and those of a MetricsRegistry."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        super().__init__(record.DEFAULT_APP)
        self._compatible = metrics

    def snapshot(self, *, views: bool = True) -> list[record.Metric]:
        """Return the values of all metrics that have one, as record structs. Those of one name and type are added up.

        A metric that can't be read, or whose name is invalid, is skipped and logged.
        """
        values = by_identity(super().snapshot(views=views))
        for value in self._compatible._report(views=views):  # noqa: SLF001 - of the same module
            values[value.identity] = add(value, values.get(value.identity))
        return list(values.values())

    def reset_after_fork(self) -> None:
        """Reset all metrics in the child of a fork."""
        super().reset_after_fork()
        self._compatible._reset_after_fork()  # noqa: SLF001 - of the same module


_global = MetricsRegistry()


def global_registry() -> MetricsRegistry:
    """Return the registry that the functions and decorators use."""
    return _global


def set_global_registry(registry: MetricsRegistry) -> None:
    """Make the functions and decorators use this registry."""
    global _global  # noqa: PLW0603 - one for each process, as in pyformance
    _global = registry


def counter(key: str) -> Counter:
    """Return the global registry's counter of this key."""
    return _global.counter(key)


def histogram(key: str) -> Histogram:
    """Return the global registry's histogram of this key."""
    return _global.histogram(key)


def meter(key: str) -> Meter:
    """Return the global registry's meter of this key."""
    return _global.meter(key)


def timer(key: str) -> Timer:
    """Return the global registry's timer of this key."""
    return _global.timer(key)


def gauge(key: str, gauge: Gauge | Callable[[], Any] | None = None) -> Any:
    """Return the global registry's gauge of this key; see `MetricsRegistry.gauge`."""
    return _global.gauge(key, gauge)


def dump_metrics() -> dict[str, dict[str, Any]]:
    """Return the values of all metrics of the global registry, by key and attribute."""
    return _global.dump_metrics()


def clear() -> None:
    """Remove all metrics of the global registry."""
    _global.clear()


def count_calls(fn: F) -> F:
    """Count the calls."""
    return _observed(fn, lambda key: counter(key).inc())


def meter_calls(fn: F) -> F:
    """Count the calls and their rate."""
    return _observed(fn, lambda key: meter(key).mark())


def time_calls(fn: F) -> F:
    """Time the calls, from the first step of a coroutine or a generator to its end."""
    return _observed(fn, lambda key: timer(key).time())


def _observed(fn: F, begin: Callable[[str], AbstractContextManager[object] | None]) -> F:
    """Return the function with `begin(key)` before each call, which is inside the context manager if it returns one."""
    key = f"{getattr(fn, '__qualname__', type(fn).__qualname__)}_calls"
    observed: F = observe_calls(fn, lambda: begin(key) or nullcontext())
    return observed
