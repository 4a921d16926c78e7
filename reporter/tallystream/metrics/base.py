"""The base class of all metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from tallystream.errors import ConfigError
from tallystream.record import Identity, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream import record


class Metric(ABC):
    """A metric of a registry, which creates it, for example with `registry.counter(name)`. It is thread-safe."""

    kind: ClassVar[str]
    """The type, as named in the record."""

    __slots__ = ("__weakref__", "make_sibling", "name", "tags")

    make_sibling: Callable[[Mapping[str, str]], Self] | None
    """Returns the metric of the same name with other tags. The registry sets it."""

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        self.name = name
        self.tags = dict(tags)
        self.make_sibling = None

    @property
    def identity(self) -> Identity:
        """The key by which the metric is summed over instances: (name, type, sorted tags)."""
        return identity(self.name, self.kind, self.tags)

    def labels(self, **tags: str) -> Self:
        """Return the metric of the same name and registry with these tags in addition to its own.

            counter("records").labels(topic="a").inc()

        A metric without a tag is a metric of its own, and reported too.

        Raises:
            ConfigError: a tag can't be used, or no registry has created the metric.
        """
        if self.make_sibling is None:
            raise ConfigError("labels", self.name, "create the metric with a registry, as in registry.counter(name)")
        return self.make_sibling({**self.tags, **tags})

    def read(self) -> record.Metric | None:
        """Return the current value as a record struct, or None if there is nothing to report."""
        return self.collect(views=True)

    @abstractmethod
    def collect(self, *, views: bool) -> record.Metric | None:
        """Return the current value for a snapshot. The registry is locked: no code of the application may run here.

        `views` tells whether the record of a distribution includes its view.
        """

    @abstractmethod
    def reset_after_fork(self) -> None:
        """Reset the values and create new locks: in the child of a fork, before it has threads."""

    def __repr__(self) -> str:
        tags = f", tags={self.tags!r}" if self.tags else ""
        return f"<{type(self).__name__} {self.name!r}{tags}>"
