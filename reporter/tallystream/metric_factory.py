"""The methods that create metrics: those of a registry and of its children."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tallystream.errors import ConfigError
from tallystream.metrics.base import Metric
from tallystream.metrics.counter import Counter, UpDownCounter
from tallystream.metrics.gauge import Gauge
from tallystream.metrics.histogram import Histogram
from tallystream.metrics.meter import Meter
from tallystream.metrics.position import Position
from tallystream.metrics.timer import Timer
from tallystream.validation import check_name, check_tags, require_mapping

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tallystream.clock import Clock

POSITION_NAME = "consumer.position"

M = TypeVar("M", bound=Metric)
Make = Callable[[str, Mapping[str, str]], M]
"""Creates a metric from its name and tags."""


class MetricFactory(ABC):
    """Returns metrics by name and tags, and creates them if they do not exist. Safe to use from any thread."""

    clock: Clock

    @abstractmethod
    def get(self, kind: type[M], name: str, tags: Mapping[str, str] | None, make: Make[M]) -> M:
        """Return the metric of this type, name and tags; `make(name, tags)` creates it.

        Raises:
            ConfigError: the name or the tags can't be used.
            MetricTypeError: the name belongs to a metric of another type.
        """

    @abstractmethod
    def atomic(self) -> AbstractContextManager[object]:
        """Make all updates of a `with registry.atomic():` block appear in the same snapshot.

        Snapshots wait for its end, so keep it short. It may be nested.
        """

    @abstractmethod
    def colocate(self, *metrics: Metric) -> None:
        """Report these metrics in the same record, even if the registry is split over several records.

        Metrics that are updated together with `atomic()` need it to stay consistent when a registry is large.
        """

    def counter(self, name: str, tags: Mapping[str, str] | None = None) -> Counter:
        """Return the counter of this name and tags. Raises ConfigError and MetricTypeError, as all of these methods."""
        return self.get(Counter, name, tags, Counter)

    def updown(self, name: str, tags: Mapping[str, str] | None = None) -> UpDownCounter:
        """Return the up-down counter of this name and tags."""
        return self.get(UpDownCounter, name, tags, UpDownCounter)

    def gauge(
        self,
        name: str,
        function: Callable[[], float | None] | None = None,
        *,
        tags: Mapping[str, str] | None = None,
    ) -> Gauge:
        """Return the gauge of this name and tags. If `function` is given, it computes the value from now on."""
        if function is not None and not callable(function):
            remedy = "give a function, or pass tags by name (tags=…) and a number to set()"
            raise ConfigError(f"function of {name!r}", function, remedy)
        gauge = self.get(Gauge, name, tags, Gauge)
        if function is not None:
            gauge.function = function
        return gauge

    def meter(self, name: str, tags: Mapping[str, str] | None = None) -> Meter:
        """Return the meter of this name and tags."""
        return self.get(Meter, name, tags, lambda n, t: Meter(n, t, self.clock))

    def histogram(self, name: str, tags: Mapping[str, str] | None = None) -> Histogram:
        """Return the histogram of this name and tags."""
        return self.get(Histogram, name, tags, lambda n, t: Histogram(n, t, self.clock))

    def timer(self, name: str, tags: Mapping[str, str] | None = None) -> Timer:
        """Return the timer of this name and tags."""
        return self.get(Timer, name, tags, lambda n, t: Timer(n, t, self.clock))

    def position(
        self, topic: str, partition: int, tags: Mapping[str, str] | None = None, *, name: str = POSITION_NAME
    ) -> Position:
        """Return the position of this topic and partition, which become the tags `topic` and `partition`."""
        require_mapping(name, tags)
        tags = {**(tags or {}), "topic": topic, "partition": str(partition)}
        return self.get(Position, name, tags, Position)

    def child(self, prefix: str = "", tags: Mapping[str, str] | None = None) -> ScopedRegistry:
        """Return a view of this registry: its metrics get `prefix` and a dot before their names, and `tags`."""
        return ScopedRegistry(self, prefix, tags)


class ScopedRegistry(MetricFactory):
    """A view of a registry with a common prefix and tags: `registry.child("http", tags={"listener": "public"})`.

    Its metrics belong to the registry. A metric's own tag replaces the child's tag of the same name.

    Raises:
        ConfigError: the prefix or a tag can't be used.
    """

    def __init__(self, parent: MetricFactory, prefix: str, tags: Mapping[str, str] | None) -> None:
        self.clock = parent.clock
        self._parent = parent
        self._prefix = check_name("prefix", prefix) + "." if prefix else ""
        self._tags = check_tags(prefix, tags)

    def get(self, kind: type[M], name: str, tags: Mapping[str, str] | None, make: Make[M]) -> M:
        """Return the metric of the registry, with the prefix and tags."""
        name = self._prefix + check_name("the name of a metric", name)
        require_mapping(name, tags)
        return self._parent.get(kind, name, {**self._tags, **(tags or {})}, make)

    def atomic(self) -> AbstractContextManager[object]:
        """Make all updates of a `with` block appear in the same snapshot."""
        return self._parent.atomic()

    def colocate(self, *metrics: Metric) -> None:
        """Report these metrics in the same record."""
        self._parent.colocate(*metrics)
