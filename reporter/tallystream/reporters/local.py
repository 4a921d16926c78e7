"""What the reporters have in common that write a snapshot and are done with it: all but the one to Kafka."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from tallystream.reporters.filters import AttributeFilter, MetricFilter
from tallystream.reporters.scheduled import ScheduledReporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.clock import Deadline
    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry
    from tallystream.reporters.base import Reportable


class LocalReporter(ScheduledReporter):
    """Writes each snapshot at once: the values of the whole process.

    Delivery: none is promised. What a report can't write is logged and counted, and the next one has the newer values.

    Args:
        registry: what is reported.
        interval: seconds between two reports, from 0.01 to 3600.
        include, exclude: shell patterns of the names of metrics: those that match an `include` and no `exclude`.
        attributes: which attributes (count, m1_rate, p99 …); None takes all.
        rate_unit: second, minute or hour.
        duration_unit: of timers: s, ms or us.
        own_metrics: whether the registry shows what this reporter does, as `tallystream.reporter.*`.

    Raises:
        ConfigError: an argument can't be used.
    """

    def __init__(
        self,
        registry: MetricRegistry | Reportable,
        *,
        interval: float = 10.0,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        attributes: Sequence[str] | None = None,
        rate_unit: str = "second",
        duration_unit: str = "s",
        own_metrics: bool = True,
    ) -> None:
        self._selection = MetricFilter(include, exclude)
        self.shape = AttributeFilter(attributes, rate_unit, duration_unit)
        super().__init__(registry, interval=interval, own_metrics=own_metrics)
        self.registry.keep_samples()

    @abstractmethod
    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        """Write the metrics of one snapshot, taken at `ts_ms`, and return how many bytes that were."""

    def _open(self) -> None:
        """Nothing to acquire."""

    def _report(self) -> bool:
        begin = self._monotonic()
        metrics = self._selection.apply(self.registry.snapshot())
        size = self._write(metrics, self.registry.clock.now().wall_ms)
        if self._own:
            self._own.sent.inc()
            self._own.bytes.inc(size)
            self._own.duration.update(self._monotonic() - begin)
        return False

    def _attend(self) -> bool:
        return False

    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:  # noqa: ARG002 - both matter to Kafka alone
        self._report()
        return True

    def _close(self, deadline: Deadline) -> None:
        """Nothing to release."""

    def _rest(self, deadline: Deadline) -> None:
        """Nothing is in a fork's way."""

    def _abandon(self) -> None:
        """Nothing is the parent's."""
