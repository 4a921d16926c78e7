"""What all metrics have in common: an identity, and one reading that goes into a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tallystream.reporter.record import Identity, identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream.reporter import record


_FOR_SNAPSHOTS_AND_FORKS = {"capture", "capture_all", "captured", "get_ready", "start_anew"}
_BETWEEN_METRICS = {"clock", "due", "monotonic", "rates_at", "take", "took"}
_NOT_OFFERED = _FOR_SNAPSHOTS_AND_FORKS | _BETWEEN_METRICS


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

    def get_ready(self) -> None:  # noqa: B027 - most have nothing to do
        """Do now what a capture would have to do otherwise: all metrics are captured in one go."""

    def capture(self, *, views: bool = True) -> Any:  # noqa: ARG002 - matters to distributions
        """Hold the present value, and return what `captured` makes the record of: that costs more, and can be later.

        `views` says whether a distribution's record is to have the view of its sample, too.
        """
        return self.read()

    @classmethod
    def capture_all(cls, metrics: Sequence[Self], *, views: bool) -> list[Any]:
        """Hold the present values of these metrics of this class, one at least, each as `capture` does.

        No update can come between, so this has to be quick: each was told to `get_ready` a moment ago, and objects that
        need not be looked at are not, for few of them are in the processor's caches.
        """
        return [metric.capture(views=views) for metric in metrics]

    def captured(self, held: Any) -> record.Metric | None:
        """Return what `read()` would have returned when that was held, None where there was nothing to report."""
        made: record.Metric | None = held
        return made

    @abstractmethod
    def start_anew(self) -> None:
        """Forget everything counted so far, and make new locks: for the child of a fork, before it has threads."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _NOT_OFFERED]

    def __repr__(self) -> str:
        tags = f", tags={self.tags!r}" if self.tags else ""
        return f"<{type(self).__name__} {self.name!r}{tags}>"
