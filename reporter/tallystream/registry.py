"""The registry: all metrics of an application, by name and tags."""

from __future__ import annotations

from threading import Lock, RLock, get_ident
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakSet

from tallystream import record
from tallystream.bridges.sources import FAILED, SourceAdapter
from tallystream.clock import SYSTEM_CLOCK, Clock
from tallystream.errors import ConfigError, TallystreamError
from tallystream.metric_factory import M, Make, MetricFactory
from tallystream.metrics.gauge import Gauge
from tallystream.metrics.histogram import Histogram
from tallystream.process.fork import Step, after_fork_in_child
from tallystream.validation import check_name, check_tags

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from tallystream.bridges.base import Source
    from tallystream.metrics.base import Metric


class MetricTypeError(TallystreamError, TypeError):
    """A metric was requested with a name that a metric of another type has."""


class Reporter(Protocol):
    """The methods of the reporter that `tallystream.report()` starts, a `KafkaReporter`."""

    @property
    def connected(self) -> bool:
        """Whether, as of the last report, the last record was delivered and no connection has failed since."""

    @property
    def enabled(self) -> bool:
        """Whether it reports. If not, none of its methods does anything."""

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""

    def report_now(self, timeout: float = 10.0) -> bool:
        """Report the current values and wait for delivery, at most `timeout` seconds; return whether they arrived."""

    def stop(self, timeout: float = 5.0) -> bool:
        """Make a last report and stop, within `timeout` seconds; return whether everything was delivered."""


class MetricRegistry(MetricFactory):
    """All metrics of one application in one process.

    All instances of an application have the same `app`, and their metrics are summed. The methods that return a metric
    create it if it does not exist: there is one object for each name and tags, in all threads.

    Args:
        app: the application's name, 1 to 512 characters.
        clock: the source of the time. Tests pass a `tallystream.testing.ManualClock`.

    Raises:
        ConfigError: the name can't be used.
    """

    def __init__(self, app: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.app = check_name("app", app)
        self.clock = clock
        self._keeps_samples = False
        self._reporter: Reporter | None = None
        # By name: the type, which all metrics with this name have, and the metrics by tags.
        self._metrics: dict[str, tuple[str, dict[tuple[tuple[str, str], ...], Metric]]] = {}
        self._groups: dict[record.Identity, record.Identity] = {}
        self._sources: list[SourceAdapter] = []
        self._reading: set[int] = set()  # the threads that read the sources and the functions of gauges
        self._grouping = Lock()
        self._lock = RLock()
        _registries.add(self)

    def __repr__(self) -> str:
        number = len(self.metrics())
        return f"<{type(self).__name__} {self.app!r} with {number} metric{'' if number == 1 else 's'}>"

    @property
    def reporter(self) -> Reporter:
        """The reporter that `tallystream.report()` started.

        Raises:
            AttributeError: `report()` was not called for this registry.
        """
        if self._reporter is None:
            remedy = f"tallystream.report({self.app!r}, registry=…) starts one"
            raise AttributeError(f"the registry {self.app!r} has no reporter; {remedy}")
        return self._reporter

    @reporter.setter
    def reporter(self, reporter: Reporter) -> None:
        self._reporter = reporter

    @property
    def has_reporter(self) -> bool:
        """Whether `tallystream.report()` has started a reporter."""
        return self._reporter is not None

    @property
    def is_reported(self) -> bool:
        """Whether the reporter that `tallystream.report()` started has not ended, or is not enabled."""
        return self._reporter is not None and (self._reporter.is_running or not self._reporter.enabled)

    def atomic(self) -> AbstractContextManager[object]:
        """Make all updates of a `with registry.atomic():` block appear in the same snapshot.

        Snapshots wait for its end, so keep it short. It may be nested.
        """
        # The lock itself: a signal's handler that raises in a generator would leave it locked.
        return self._lock

    def colocate(self, *metrics: Metric) -> None:
        """Report these metrics of this registry in the same record, even if the registry is split over several records.

        Metrics that are updated together with `atomic()` need it to stay consistent when a registry is large.
        """
        if not metrics:
            return
        with self._grouping:
            joined = [self._groups[metric.identity] for metric in metrics if metric.identity in self._groups]
            group = joined[0] if joined else metrics[0].identity
            self._groups.update({identity: group for identity, old in self._groups.items() if old in joined})
            self._groups.update({metric.identity: group for metric in metrics})

    def groups(self) -> dict[record.Identity, record.Identity]:
        """Return the group of each metric that must be in the same record as others."""
        with self._grouping:
            return dict(self._groups)

    def add_source(self, source: Source, *, prefix: str = "", tags: Mapping[str, str] | None = None) -> None:
        """Also report the metrics of another library in this process from now on. See `tallystream.bridges`.

        Their names get `prefix` and a dot in front, and `tags` are added. Metrics that can't be reported are skipped,
        logged and counted as `tallystream.reporter.source.failed`.

        Raises:
            ConfigError: `prefix` or `tags` can't be used, or the source was added before.
        """
        if any(adapter.source is source for adapter in self._sources):
            raise ConfigError("source", source.kind, "add it once; this registry already reports it")
        adapter = SourceAdapter(
            source, prefix, tags, lambda: self.counter(FAILED, tags={"source": source.kind}), self.clock
        )
        self._sources = [*self._sources, adapter]

    def metrics(self) -> list[Metric]:
        """Return all metrics by name, in the order in which the names, and the metrics of a name, were created."""
        # Copying a dict's values is atomic: a snapshot does not wait here for a thread that creates a metric.
        return [metric for _, metrics in list(self._metrics.values()) for metric in list(metrics.values())]

    def keep_samples(self) -> None:
        """Make histograms and timers keep samples from now on: for reporters that show values of samples."""
        self._keeps_samples = True
        for metric in self.metrics():
            self._keep_sample_of(metric)

    def snapshot(self, *, views: bool = True) -> list[record.Metric]:
        """Return the values of all metrics that have one, as record structs, by name.

        It has all or none of the updates of an `atomic()` block. Counts are those of the whole process. Without
        `views`, histograms and timers have only the values that can be merged over instances. If code of a source, or
        the function of a gauge, calls it, the metrics of sources and the gauges with functions are left out.
        """
        thread = get_ident()
        is_nested = thread in self._reading
        # Code of the application may use the registry, so it runs before the lock is taken.
        try:
            self._reading.add(thread)
            from_sources = [] if is_nested else self._read_sources()
            by_tags = [metrics for kind, metrics in list(self._metrics.values()) if kind == Gauge.kind]
            listed = [metric for metrics in by_tags for metric in list(metrics.values())]
            gauges = [metric for metric in listed if isinstance(metric, Gauge) and metric.function is not None]
            computed = {gauge: None if is_nested else gauge.read() for gauge in gauges}
        finally:
            if not is_nested:
                self._reading.discard(thread)
        with self._lock:
            collected = [computed[m] if m in computed else m.collect(views=views) for m in self.metrics()]
        return [value for value in collected if value is not None] + from_sources

    def _read_sources(self) -> list[record.Metric]:
        names, seen = set(self._metrics), set[record.Identity]()
        return [metric for source in self._sources for metric in source.read(names, seen)]

    def reset_after_fork(self) -> None:
        """Reset all metrics and locks, in the child of a fork, before it has threads."""
        self._grouping = Lock()
        self._lock = RLock()
        for metric in self.metrics():
            metric.reset_after_fork()
        self._reading = set()
        # Each is read in a thread of its own, and its code may read the registry.
        sources, self._sources = self._sources, []
        try:
            for source in sources:
                source.reset_after_fork()
        finally:
            self._sources = sources

    def get(self, kind: type[M], name: str, tags: Mapping[str, str] | None, make: Make[M]) -> M:
        """Return the metric of this type, name and tags; `make(name, tags)` creates it."""
        name = check_name("the name of a metric", name)
        tags = check_tags(name, tags)
        key = tuple(tags.items())
        known = self._metrics.get(name)
        metric = None if known is None else known[1].get(key)
        if known is None or metric is None:
            # No lock is held: a finalizer or a signal handler may interrupt this thread, and request the same metric.
            # `setdefault` is atomic, so all get the one that was added first. A fork or KeyboardInterrupt leaves no
            # intermediate state.
            made = make(name, tags)
            made.make_sibling = lambda others: self.get(kind, name, others, make)
            self._keep_sample_of(made)
            known = self._metrics.setdefault(name, (kind.kind, {key: made}))
            if known[0] == kind.kind:
                metric = known[1].setdefault(key, made)
                self._keep_sample_of(metric)  # again, since keep_samples() may have been called meanwhile
        if metric is None or known[0] != kind.kind:
            raise MetricTypeError(
                f"the name {name!r} is a {known[0]} already, so it can't be a {kind.kind}; choose another name"
            )
        assert isinstance(metric, kind)
        return metric

    def _keep_sample_of(self, metric: Metric) -> None:
        if self._keeps_samples and isinstance(metric, Histogram):
            metric.keep_sample()


@runtime_checkable
class Reportable(Protocol):
    """The registry of another library, such as `pyformance_compat.MetricsRegistry`."""

    @property
    def tallystream(self) -> MetricRegistry:
        """The registry that reports its metrics."""


def registry_of(registry: MetricRegistry | Reportable | Any) -> MetricRegistry:
    """Return the registry to report.

    Raises:
        ConfigError: `registry` is not a registry.
    """
    if isinstance(registry, MetricRegistry):
        return registry
    if isinstance(registry, Reportable):
        return registry.tallystream
    raise ConfigError("registry", registry, "give a MetricRegistry, or pyformance_compat's MetricsRegistry")


_registries: WeakSet[MetricRegistry] = WeakSet()


def _reset_after_fork() -> None:
    for registry in list(_registries):
        registry.reset_after_fork()


after_fork_in_child(Step.METRICS, _reset_after_fork)
