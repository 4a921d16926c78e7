"""Tools for tests of applications that use the reporter: a manual clock, an in-memory reporter and assertions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tallystream.reporters.local import LocalReporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry, Reportable

__all__ = ["InMemoryReporter", "ManualClock", "assert_count", "find"]


class ManualClock:
    """A monotonic and a wall clock that only the test advances: `MetricRegistry("orders", clock=ManualClock())`.

    Args:
        wall_ms: the initial value of the wall clock, epoch milliseconds.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic = 0.0
        self._wall_ms = float(wall_ms)

    def advance(self, seconds: float) -> None:
        """Advance both clocks."""
        self._monotonic += seconds
        self._wall_ms += seconds * 1000

    def sleep(self, seconds: float) -> None:
        """Advance only the wall clock, as when the machine sleeps."""
        self._wall_ms += seconds * 1000

    def monotonic(self) -> float:
        """Return the seconds by which `advance` has moved the clock."""
        return self._monotonic

    def wall_ms(self) -> int:
        """Return the time of the wall clock, epoch milliseconds."""
        return int(self._wall_ms)


class InMemoryReporter(LocalReporter):
    """Stores every report in `reports`, newest last. Each is a list of metrics as record structs."""

    kind: ClassVar[str] = "memory"

    def __init__(self, registry: MetricRegistry | Reportable, *, own_metrics: bool = False, **options: Any) -> None:
        self.reports: list[list[Metric]] = []
        super().__init__(registry, own_metrics=own_metrics, **options)

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:  # noqa: ARG002 - the test controls the clock
        self.reports.append(metrics)
        return 0


def find(registry: MetricRegistry, name: str, tags: Mapping[str, str] | None = None) -> Metric | None:
    """Return the current value of the metric as a record struct, or None if there is none of this name and tags."""
    expected = dict(tags or {})
    return next((m for m in registry.snapshot() if m.name == name and m.tags == expected), None)


def assert_count(registry: MetricRegistry, name: str, count: int, tags: Mapping[str, str] | None = None) -> None:
    """Assert that a counter, meter, histogram or timer has counted `count`. The message reports what was found."""
    found = find(registry, name, tags=tags)
    if found is None:
        metrics = registry.snapshot()
        names = " and ".join(sorted({repr(metric.name) for metric in metrics})) or "none"
        others = " and ".join(sorted(str(metric.tags) for metric in metrics if metric.name == name))
        existing = f"it has {others}" if others else f"the registry has {names}"
        raise AssertionError(f"no metric {name!r} with the tags {dict(tags or {})}; {existing}")
    actual = getattr(found, "count", None)
    if actual != count:
        raise AssertionError(f"{name!r} counted {actual}, not {count}: {found}")
