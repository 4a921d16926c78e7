"""What all metrics have in common: an identity, and one reading that goes into a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from tallystream.reporter.record import Identity, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.reporter import record


class Metric(ABC):
    """A metric of a registry, which makes it: `registry.counter(name)` and its like. Safe to use from any thread."""

    kind: ClassVar[str]
    """The type as the record names it."""

    __slots__ = ("__weakref__", "name", "tags")

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        self.name = name
        self.tags = dict(tags)

    @property
    def identity(self) -> Identity:
        """What is summed over instances: (name, type, sorted tags)."""
        return identity(self.name, self.kind, self.tags)

    @abstractmethod
    def read(self) -> record.Metric | None:
        """Return the present value in the record's form, None where there is nothing to report."""

    def capture(self) -> record.Metric | Callable[[], record.Metric] | None:
        """Hold the present value: return what `read()` would, or a function that does, where that costs more."""
        return self.read()

    @abstractmethod
    def start_anew(self) -> None:
        """Forget everything counted so far, and make new locks: for the child of a fork, before it has threads."""

    def __repr__(self) -> str:
        tags = f", tags={self.tags!r}" if self.tags else ""
        return f"<{type(self).__name__} {self.name!r}{tags}>"
