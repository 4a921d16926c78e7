"""The registry: every metric of an application, by name and tags."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock, RLock
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from tallystream import record
from tallystream.bridges.sources import FAILED, SourceAdapter
from tallystream.clock import SYSTEM_CLOCK, Clock
from tallystream.errors import ConfigError, TallystreamError
from tallystream.fork import Step, after_fork_in_child
from tallystream.metric_factory import M, MetricFactory
from tallystream.metrics.gauge import Gauge, checked
from tallystream.metrics.histogram import Histogram
from tallystream.metrics.sampling import DEFAULT_SAMPLING, Sampling
from tallystream.validation import check_name, check_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream.bridges.base import Source
    from tallystream.metrics.base import Metric


class MetricTypeError(TallystreamError, TypeError):
    """A name that is used for a metric of one type was asked for with another type."""


class Reporter(Protocol):
    """What a registry knows of the reporter that `tallystream.report()` started: a `KafkaReporter`."""

    @property
    def connected(self) -> bool:
        """Whether the last record arrived, and no connection has failed since, as of the last report."""

    def report_now(self, timeout: float = 10.0) -> bool:
        """Report once more and wait until it is delivered, `timeout` seconds at most; return whether it is."""

    def stop(self, timeout: float = 5.0) -> bool:
        """Report a last time within `timeout` seconds, and stop; return whether everything is delivered."""


class MetricRegistry(MetricFactory):
    """All metrics of one application in one process.

    `app` is what the sums belong to: the instances of an application share it. Asking for a metric makes it, or returns
    the one that is there: one object for the same name and tags, whatever the threads.

    Args:
        app: the application's name, 1 to 512 characters.
        clock: where the time comes from; tests pass `tallystream.testing.ManualClock`.
        sampling: which sample histograms and timers keep that are made without a choice of their own. Without it they
            keep `ExponentiallyDecaying()`, and only once a reporter is made that shows what samples say.

    Raises:
        ConfigError: the name can't be used.
    """

    def __init__(self, app: str, *, clock: Clock = SYSTEM_CLOCK, sampling: Sampling | None = None) -> None:
        self.app = check_name("app", app)
        self.clock, self.sampling = clock, DEFAULT_SAMPLING if sampling is None else sampling
        self._keeps_samples = sampling is not None
        self._reporter: Reporter | None = None
        # The one index, by name and then by tags: one assignment adds a metric, so a fork or KeyboardInterrupt at any
        # moment leaves it there or not. All metrics of a name have one type.
        self._metrics: dict[str, dict[tuple[tuple[str, str], ...], Metric]] = {}
        self._groups: dict[record.Identity, record.Identity] = {}
        self._sources: list[SourceAdapter] = []
        self._making = Lock()
        self._lock = RLock()
        _registries.add(self)

    def __repr__(self) -> str:
        number = sum(len(of_name) for of_name in list(self._metrics.values()))
        return f"<{type(self).__name__} {self.app!r} with {number} metric{'' if number == 1 else 's'}>"

    @property
    def reporter(self) -> Reporter:
        """The reporter that `tallystream.report()` started.

        Raises:
            AttributeError: it has not been called for this registry.
        """
        if self._reporter is None:
            remedy = f"tallystream.report({self.app!r}, registry=…) starts one"
            raise AttributeError(f"the registry {self.app!r} has no reporter; {remedy}")
        return self._reporter

    @reporter.setter
    def reporter(self, reporter: Reporter) -> None:
        self._reporter = reporter

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Make updates that no snapshot can separate: `with registry.atomic():`. Keep it short; it may be nested."""
        with self._lock:
            yield

    def colocate(self, *metrics: Metric) -> None:
        """Have these metrics of this registry reported in the same record, however large the registry is.

        What belongs to one another must not be torn apart when a large registry is split over records.
        """
        with self._making:
            known = [self._groups[metric.identity] for metric in metrics if metric.identity in self._groups]
            group = known[0] if known else metrics[0].identity
            self._groups.update({identity: group for identity, old in self._groups.items() if old in known})
            self._groups.update({metric.identity: group for metric in metrics})

    def groups(self) -> dict[record.Identity, record.Identity]:
        """Return, for each metric that must be reported together with others, what names its group."""
        with self._making:
            return dict(self._groups)

    def add_source(self, source: Source, *, prefix: str = "", tags: Mapping[str, str] | None = None) -> None:
        """Report from now on what another library counts in this process, too: see `tallystream.bridges`.

        Its metrics get `prefix` and a point before their names, and `tags`. What of it can't be reported is left out,
        logged, and counted as `tallystream.reporter.source.failed`; everything else goes on.

        Raises:
            ConfigError: prefix or tags can't be used, or the source was added before.
        """
        if any(joined.source is source for joined in self._sources):
            raise ConfigError("source", source.kind, "add it once: it is reported by this registry already")
        joined = SourceAdapter(
            source, prefix, tags, lambda: self.counter(FAILED, tags={"source": source.kind}), self.clock
        )
        self._sources = [*self._sources, joined]

    def metrics(self) -> list[Metric]:
        """Return every metric, name by name, in the order in which they were made."""
        # Copying a dict's values is atomic: a snapshot does not wait here for a thread that makes a metric.
        return [metric for of_name in list(self._metrics.values()) for metric in list(of_name.values())]

    def keep_samples(self) -> None:
        """Have histograms and timers keep samples from now on: for reporters that show what samples say."""
        with self._making:
            self._keeps_samples = True
            for metric in self.metrics():
                if isinstance(metric, Histogram):
                    metric.keep_sample()

    def snapshot(self, *, views: bool = True) -> list[record.Metric]:
        """Return the value of every metric that has one, in the record's form, name by name.

        What was set within one `atomic()` is in it as a whole or not at all. Counts are those of the whole process.
        Without `views` histograms and timers have what merges over instances, and not their views.
        """
        bridged = self._read_sources()
        # Code of the application, which may use the registry, runs before the lock is taken or after it is released.
        gauges = [each for each in self.metrics() if isinstance(each, Gauge) and each.function is not None]
        computed: dict[Metric, record.Metric | None] = {gauge: gauge.compute() for gauge in gauges}
        with self._lock:
            metrics = self.metrics()
            found = [computed[each] if each in computed else each.collect(views=views) for each in metrics]
        values = [checked(each) if isinstance(each, record.Gauge) else each for each in found]
        return [each for each in values if each is not None] + bridged

    def _read_sources(self) -> list[record.Metric]:
        with self._making:
            taken = set(self._metrics) if self._sources else set()
        seen: set[record.Identity] = set()
        return [metric for source in self._sources for metric in source.read(taken, seen)]

    def reset_after_fork(self) -> None:
        """Let every metric start again, with new locks: for the child of a fork, before it has threads."""
        self._making = Lock()
        self._lock = RLock()
        for metric in self.metrics():
            metric.reset_after_fork()
        for source in self._sources:
            source.reset_after_fork()

    def get(
        self,
        kind: type[M],
        name: str,
        tags: Mapping[str, str] | None,
        make: Callable[[str, Mapping[str, str]], M],
    ) -> M:
        """Return the metric of this type, name and tags; `make(name, tags)` makes it."""
        tags = check_tags(check_name("the name of a metric", name), tags)
        key = tuple(tags.items())
        with self._making:
            of_name = self._metrics.get(name, {})
            one = next(iter(of_name.values()), None)
            if one is not None and one.kind != kind.kind:
                raise MetricTypeError(
                    f"the name {name!r} is a {one.kind} already, so it can't be a {kind.kind}; choose another name"
                )
            metric = of_name.get(key)
            if metric is None:
                metric = make(name, tags)
                if self._keeps_samples and isinstance(metric, Histogram):
                    metric.keep_sample()
                of_name[key] = metric
                self._metrics[name] = of_name
            assert isinstance(metric, kind)
            return metric


_registries: WeakSet[MetricRegistry] = WeakSet()


def _reset_after_fork() -> None:
    for registry in list(_registries):
        registry.reset_after_fork()


after_fork_in_child(Step.METRICS, _reset_after_fork)
