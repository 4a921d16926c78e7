"""The registry: metrics by key and tags."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from tallystream.reporter._names import check_name, label
from tallystream.reporter.pyformance_compat._clock import WALL, Clock
from tallystream.reporter.pyformance_compat._log import log
from tallystream.reporter.pyformance_compat._published import Key, Member, PublishedRegistry
from tallystream.reporter.pyformance_compat._values import VALUES
from tallystream.reporter.pyformance_compat.meters.counter import Counter
from tallystream.reporter.pyformance_compat.meters.gauge import CallbackGauge, Gauge, SimpleGauge
from tallystream.reporter.pyformance_compat.meters.histogram import Histogram
from tallystream.reporter.pyformance_compat.meters.meter import Meter
from tallystream.reporter.pyformance_compat.meters.timer import Sink, Timer
from tallystream.reporter.record import DEFAULT_APP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.reporter.registry import MetricRegistry

M = TypeVar("M", Counter, Histogram, Meter, Timer, Gauge)
_KINDS: tuple[type[Any], ...] = (Counter, Histogram, Meter, Timer, Gauge)
"""The metric classes, in the order in which they are dumped."""


class MetricsRegistry:
    """All metrics of an application, by key. Tallystream's reporters take it: `KafkaReporter(registry, …)`.

    Asking for a metric makes it, or returns the one that is there: one object, whatever the threads. The same key may
    be used for metrics of several types.

    Args:
        clock: where the metrics have the seconds from: anything with `time()`.
    """

    def __init__(self, clock: Clock = WALL) -> None:
        self._clock = clock
        self._making = RLock()
        self._metrics: dict[type[Any], dict[Key, Any]] = {kind: {} for kind in _KINDS}
        self._left: dict[tuple[type[Any], Key], Any] = {}
        self._published = PublishedRegistry(DEFAULT_APP, self._members, self._start_anew)

    @property
    def tallystream(self) -> MetricRegistry:
        """The registry that the reporters take: these metrics, and any of its own, such as positions."""
        return self._published

    @property
    def app(self) -> str:
        """The application's name, to which the sums belong; set it before a reporter is made. "default" if not set.

        Raises:
            ConfigError: a name that can't be used is set.
        """
        return self._published.app

    @app.setter
    def app(self, name: str) -> None:
        self._published.app = check_name("app", name)

    def add(self, key: str, metric: Any, tags: Mapping[str, object] | None = None) -> None:
        """Take a metric that was made elsewhere.

        Raises:
            LookupError: there is one of this class and key.
            TypeError: it is no metric.
        """
        for kind in _KINDS:
            if isinstance(metric, kind):
                place = _place(key, tags)
                with self._making:
                    if place in self._metrics[kind]:
                        raise LookupError(f"Metric {key!r} already registered")
                    self._take(kind, place, metric)
                return
        raise TypeError(f"Invalid class. Could not register metric {key!r}")

    def counter(self, key: str, tags: Mapping[str, object] | None = None) -> Counter:
        """Return the counter of this key and tags."""
        return self._get(Counter, key, tags, Counter)

    def histogram(self, key: str, tags: Mapping[str, object] | None = None) -> Histogram:
        """Return the histogram of this key and tags."""
        return self._get(Histogram, key, tags, lambda: Histogram(clock=self._clock))

    def gauge(
        self,
        key: str,
        gauge: Gauge | Callable[[], Any] | None = None,
        default: Any = float("nan"),
        tags: Mapping[str, object] | None = None,
    ) -> Any:
        """Return the gauge of this key and tags; if it is not there, `gauge`, one that calls it, or a SimpleGauge.

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

    def meter(self, key: str, tags: Mapping[str, object] | None = None) -> Meter:
        """Return the meter of this key and tags."""
        return self._get(Meter, key, tags, lambda: Meter(clock=self._clock))

    def timer(self, key: str, tags: Mapping[str, object] | None = None) -> Timer:
        """Return the timer of this key and tags."""
        return self._get(Timer, key, tags, lambda: Timer(clock=self._clock, sink=self.create_sink()))

    def create_sink(self) -> Sink | None:
        """Return what each new timer tells its durations; a subclass may say."""
        return None

    def clear(self) -> None:
        """Forget all metrics. One that is made later by the same key counts from zero, but counts on in the record."""
        with self._making:
            for kind, metrics in self._metrics.items():
                for place, metric in metrics.items():
                    self._left[kind, place] = metric.tallystream_leave()
                metrics.clear()

    def get_metrics(self, key: str, tags: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the values of all metrics of a key, by attribute."""
        return self._values(_place(key, tags))

    def dump_metrics(self) -> dict[str, dict[str, Any]]:
        """Return the values of all metrics, by key and attribute; the key of tagged ones is `key{tag=value,…}`.

        A metric that can't be read (a gauge's function raises) is left out, with a line in the log.
        """
        dumped = {}
        for place, _ in self._members():
            try:
                dumped[_dumped(place)] = self._values(place)
            except Exception:  # noqa: BLE001 - the application's function; its neighbours must be dumped
                log.exception("%s is left out of this dump", label(place[0], dict(place[1])))
        return dumped

    def _values(self, place: Key) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for kind, read in VALUES:
            metric = self._metrics[kind].get(place)
            if metric is not None:
                values.update(read(metric))
        return values

    def _get(self, kind: type[M], key: str, tags: Mapping[str, object] | None, make: Callable[[], M]) -> M:
        place = _place(key, tags)
        metric: M | None = self._metrics[kind].get(place)
        if metric is not None:
            return metric
        with self._making:
            metric = self._metrics[kind].get(place)
            if metric is None:
                metric = make()
                self._take(kind, place, metric)
            return metric

    def _take(self, kind: type[Any], place: Key, metric: Any) -> None:
        metric.tallystream_join(str(place[0]), self._left.get((kind, place)))
        self._metrics[kind][place] = metric
        self._left.pop((kind, place), None)

    def _members(self) -> list[tuple[Key, Member]]:
        with self._making:
            return [found for metrics in self._metrics.values() for found in metrics.items()]

    def _start_anew(self) -> None:
        self._making = RLock()
        self._left.clear()
        for metrics in self._metrics.values():
            for metric in metrics.values():
                metric.tallystream_start_anew()


def _place(key: Any, tags: Mapping[str, object] | None) -> Key:
    return key, tuple(sorted((str(name), str(value)) for name, value in tags.items())) if tags else ()


def _dumped(place: Key) -> Any:
    key, tags = place
    return f"{key}{{{','.join(f'{name}={value}' for name, value in tags)}}}" if tags else key
