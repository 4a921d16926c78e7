"""The registries, the functions of the global one, and the decorators.

The decorators count, meter and time the calls of a function. The default key is its qualified name and `_calls`.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from functools import partial, wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from tallystream import record
from tallystream.baselines import add
from tallystream.errors import is_of_a_signal
from tallystream.metrics.calls import observe_calls
from tallystream.pyformance_compat.meters import CallbackGauge, Counter, Gauge, Histogram, Meter, SimpleGauge, Timer
from tallystream.pyformance_compat.stats import WALL, Clock
from tallystream.registry import MetricRegistry
from tallystream.validation import check_name, check_tags, label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Series = tuple[Any, tuple[tuple[str, str], ...]]  # (key, sorted tags)
    Tags = Mapping[str, object] | None

_log = logging.getLogger("tallystream.pyformance_compat")

M = TypeVar("M", Counter, Histogram, Meter, Timer, Gauge)
_CLASSES: tuple[type[Any], ...] = (Counter, Histogram, Meter, Timer, Gauge)
"""The order of a dump. If a key has metrics of several classes, attributes of later classes replace earlier ones."""

UNMATCHED = "(unmatched)"
"""The record's name of the key "", which a RegexRegistry uses for what its pattern does not match."""


class MetricsRegistry:
    """All metrics of an application, by key. Tallystream's reporters accept it: `KafkaReporter(registry, …)`.

    The methods that return a metric create it if it does not exist: there is one object in all threads. The same key
    may be used for metrics of several types.

    Args:
        clock: the source of the time, any object with `time()` in seconds.
    """

    def __init__(self, clock: Clock = WALL) -> None:
        self._clock = clock
        self._making = RLock()
        self._metrics: dict[type[Any], dict[Series, Any]] = {each: {} for each in _CLASSES}
        self._retired: dict[tuple[type[Any], Series], record.Metric] = {}
        self._reported = _ReportedRegistry(self)

    @property
    def tallystream(self) -> MetricRegistry:
        """The registry for Tallystream's reporters: it has these metrics, and those that are created in it."""
        return self._reported

    @property
    def app(self) -> str:
        """The application's name, by which metrics are summed; default: "default". Set it before creating a reporter.

        Raises:
            ConfigError: the name can't be used.
        """
        return self._reported.app

    @app.setter
    def app(self, name: str) -> None:
        self._reported.app = check_name("app", name)

    def add(self, key: str, metric: Any, tags: Tags = None) -> None:
        """Add a metric that was created elsewhere.

        Raises:
            LookupError: the registry has a metric of this class, key and tags.
            TypeError: the object is not a metric.
        """
        for kind in reversed(_CLASSES):  # a Timer is also a Histogram
            if isinstance(metric, kind):
                series = _series(key, tags)
                with self._making:
                    if series in self._metrics[kind]:
                        raise LookupError(f"Metric {key!r} already registered")
                    self._put(kind, series, metric)
                return
        raise TypeError(f"Invalid class. Could not register metric {key!r}")

    def counter(self, key: str, tags: Tags = None) -> Counter:
        """Return the counter of this key and tags."""
        return self._get(Counter, key, tags, Counter)

    def histogram(self, key: str, tags: Tags = None) -> Histogram:
        """Return the histogram of this key and tags."""
        return self._get(Histogram, key, tags, lambda: Histogram(clock=self._clock))

    def gauge(
        self,
        key: str,
        gauge: Gauge | Callable[[], Any] | None = None,
        default: Any = float("nan"),
        tags: Tags = None,
    ) -> Any:
        """Return the gauge of this key and tags. A new one is `gauge`, calls the function `gauge`, or is a SimpleGauge.

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

        return self._get(Gauge, key, tags, make)

    def meter(self, key: str, tags: Tags = None) -> Meter:
        """Return the meter of this key and tags."""
        return self._get(Meter, key, tags, lambda: Meter(clock=self._clock))

    def timer(self, key: str, tags: Tags = None) -> Timer:
        """Return the timer of this key and tags."""
        return self._get(Timer, key, tags, lambda: Timer(clock=self._clock, sink=self.create_sink()))

    def create_sink(self) -> Any:
        """Return an object whose method `add` receives the durations of a new timer. Subclasses override it."""
        return None

    def clear(self) -> None:
        """Remove all metrics. A new metric of the same key starts at zero, but its count in the record continues."""
        with self._making:
            for kind, metrics in self._metrics.items():
                for series, metric in metrics.items():
                    value = metric.tallystream_retire(_record_name(series), dict(series[1]))
                    if value is not None:
                        self._retired[kind, series] = add(value, self._retired.get((kind, series)))
                metrics.clear()

    def get_metrics(self, key: str, tags: Tags = None) -> dict[str, Any]:
        """Return the values of all metrics of a key, by attribute."""
        return self._values(_series(key, tags))

    def dump_metrics(self) -> dict[str, dict[str, Any]]:
        """Return the values of all metrics, by key and attribute; tagged metrics have the key `key{tag=value,…}`.

        A metric that can't be read, such as a gauge whose function raises, is skipped and logged.
        """
        dumped = {}
        for _, (key, tags), _ in self._members():
            try:
                name = f"{key}{{{','.join(f'{tag}={value}' for tag, value in tags)}}}" if tags else key
                dumped[name] = self._values((key, tags))
            except BaseException as error:  # the application's function; the other metrics must be dumped
                if is_of_a_signal(error):
                    raise
                _log.exception("%s is skipped in this dump", label(key, dict(tags)))
        return dumped

    def _values(self, series: Series) -> dict[str, Any]:
        found = [self._metrics[kind].get(series) for kind in _CLASSES]
        dumps = [metric.tallystream_dump() for metric in found if metric is not None]
        return {name: value for dump in dumps for name, value in dump.items()}

    def _get(self, kind: type[M], key: str, tags: Tags, make: Callable[[], M]) -> M:
        series = _series(key, tags)
        metric: M | None = self._metrics[kind].get(series)
        if metric is not None:
            return metric
        with self._making:
            metric = self._metrics[kind].get(series)
            if metric is None:
                metric = self._put(kind, series, make())
            return metric

    def _put(self, kind: type[M], series: Series, metric: M) -> M:
        metric.tallystream_register(str(series[0]))
        # A finalizer or a signal handler may have added one while this one was created, in the same thread.
        known: dict[Series, M] = self._metrics[kind]
        return known.setdefault(series, metric)

    def _members(self) -> list[tuple[type[Any], Series, Any]]:
        with self._making:
            return [(kind, series, each) for kind, found in self._metrics.items() for series, each in found.items()]

    def _report(self) -> list[record.Metric]:
        # Return the metrics as record structs. The lock prevents a clear() between reading a count and adding the
        # retired one. Gauges are read without it: they call functions of the application, which may wait for it.
        with self._making:
            members = self._members()
            found = [self._read(*each) for each in members if each[0] is not Gauge]
        found += [self._read(*each) for each in members if each[0] is Gauge]
        return [value for value in found if value is not None]

    def _read(self, kind: type[Any], series: Series, metric: Any) -> record.Metric | None:
        name, tags = _record_name(series), dict(series[1])
        try:
            value = metric.tallystream_read(check_name("the name of a metric", name), check_tags(name, tags))
            return None if value is None else add(value, self._retired.get((kind, series)))
        except Exception as error:  # noqa: BLE001 - the other metrics must be reported
            _log.warning("%s is skipped in this snapshot: %s: %s", label(name, tags), type(error).__name__, error)
            return None

    def _reset_after_fork(self) -> None:
        self._making = RLock()
        self._retired.clear()
        for metrics in self._metrics.values():
            for metric in metrics.values():
                metric.tallystream_reset()


class RegexRegistry(MetricsRegistry):
    r"""A registry that builds the key from the groups of a pattern, joined by `/`.

    With `^/api/(\w+)/\d+/(\w+)?$`, /api/users/1/edit and /api/users/2/edit both have the key users/edit. A key that the
    pattern does not match becomes "".

    Args:
        pattern: a regular expression.
        clock: as in MetricsRegistry.
    """

    def __init__(self, pattern: str | None = None, clock: Clock = WALL) -> None:
        super().__init__(clock)
        self.pattern = re.compile("^$" if pattern is None else pattern)

    def _get(self, kind: type[M], key: str, tags: Tags, make: Callable[[], M]) -> M:
        groups = (group for match in self.pattern.finditer(key) for group in match.groups() if group)
        return super()._get(kind, "/".join(groups), tags, make)


class _ReportedRegistry(MetricRegistry):
    """The registry for reporters: its own metrics, and those of a MetricsRegistry."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        super().__init__(record.DEFAULT_APP)
        self._compatible = metrics

    def snapshot(self, *, views: bool = True) -> list[record.Metric]:
        """Return the values of all metrics that have one, as record structs.

        A metric that can't be read, or whose name is invalid or used twice, is skipped and logged.
        """
        snapshot = super().snapshot(views=views)
        identities = {metric.identity for metric in snapshot}
        for metric in self._compatible._report():  # noqa: SLF001 - of the same module
            identity = metric.identity
            if identity in identities:
                what = label(metric.name, metric.tags)
                _log.warning("%s is skipped: there is another %s with this name and these tags", what, metric.type)
                continue
            identities.add(identity)
            snapshot.append(metric)
        return snapshot

    def reset_after_fork(self) -> None:
        """Reset all metrics in the child of a fork."""
        super().reset_after_fork()
        self._compatible._reset_after_fork()  # noqa: SLF001 - of the same module


def _series(key: Any, tags: Tags) -> Series:
    return key, tuple(sorted((str(name), str(value)) for name, value in tags.items())) if tags else ()


def _record_name(series: Series) -> str:
    return str(series[0]) or UNMATCHED


_global = MetricsRegistry()


def global_registry() -> MetricsRegistry:
    """Return the registry that the functions and decorators use."""
    return _global


def set_global_registry(registry: MetricsRegistry) -> None:
    """Make the functions and decorators use this registry."""
    global _global  # noqa: PLW0603 - one for each process, as in pyformance
    _global = registry


def counter(key: str, tags: Tags = None) -> Counter:
    """Return the global registry's counter of this key and tags."""
    return _global.counter(key, tags)


def histogram(key: str, tags: Tags = None) -> Histogram:
    """Return the global registry's histogram of this key and tags."""
    return _global.histogram(key, tags)


def meter(key: str, tags: Tags = None) -> Meter:
    """Return the global registry's meter of this key and tags."""
    return _global.meter(key, tags)


def timer(key: str, tags: Tags = None) -> Timer:
    """Return the global registry's timer of this key and tags."""
    return _global.timer(key, tags)


def gauge(key: str, gauge: Gauge | Callable[[], Any] | None = None, tags: Tags = None) -> Any:
    """Return the global registry's gauge of this key and tags; see `MetricsRegistry.gauge`."""
    return _global.gauge(key, gauge, tags=tags)


def dump_metrics() -> dict[str, dict[str, Any]]:
    """Return the values of all metrics of the global registry, by key and attribute."""
    return _global.dump_metrics()


def clear() -> None:
    """Remove all metrics of the global registry."""
    _global.clear()


def get_qualname(obj: Any) -> str:
    """Return the qualified name of a function or class, or that of an object's class."""
    return str(getattr(obj, "__qualname__", type(obj).__qualname__))


def _decorator(
    observe: Callable[[MetricsRegistry, str, Tags, str], Iterator[None]],
    result: Callable[[MetricsRegistry, str, Tags, Any], None] = lambda *_: None,
) -> Callable[..., Any]:
    """Return the decorator that runs each call inside `observe`, and passes what it returns to `result`.

    Both receive the registry, and the key and the tags of the metric; `observe` also receives the function's name.
    """
    around = contextmanager(observe)

    @wraps(observe, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def decorate(
        fn: Any = None, metric_name: str | None = None, registry: MetricsRegistry | None = None, tags: Tags = None
    ) -> Any:
        if fn is None:
            return partial(decorate, metric_name=metric_name, registry=registry, tags=tags)
        function_name = get_qualname(fn)
        key = f"{function_name}_calls" if metric_name is None else metric_name

        def current() -> MetricsRegistry:
            return _global if registry is None else registry

        def passed(returned: Any) -> Any:
            result(current(), key, tags, returned)
            return returned

        return observe_calls(fn, lambda: around(current(), key, tags, function_name), passed)

    del decorate.__wrapped__  # the signature is that of `decorate`
    return decorate


@_decorator
def count_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[None]:
    """Count the calls: `@count_calls`, or `@count_calls(metric_name=…, registry=…, tags=…)`."""
    registry.counter(key, tags).inc()
    yield


@_decorator
def meter_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[None]:
    """Count the calls and their rate."""
    registry.meter(key, tags).mark()
    yield


def _add_result(registry: MetricsRegistry, key: str, tags: Tags, result: Any) -> None:
    if type(result) in (int, float):
        registry.histogram(key, tags).add(result)


@partial(_decorator, result=_add_result)
def hist_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[None]:
    """Add what the function returns to a histogram if it is an int or a float."""
    registry.histogram(key, tags)
    yield


@_decorator
def time_calls(registry: MetricsRegistry, key: str, tags: Tags, name: str) -> Iterator[None]:
    """Time the calls, from the first step of a coroutine or a generator to its end."""
    with registry.timer(key, tags).time(fn=name):
        yield
