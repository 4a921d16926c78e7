"""The base class of the reporters without Kafka, which write each snapshot independently of earlier ones."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from tallystream.reporters.filters import AttributeFilter
from tallystream.reporters.scheduled import ScheduledReporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry, Reportable


class LocalReporter(ScheduledReporter):
    """Writes each snapshot immediately. It has the values of the whole process.

    Delivery is not guaranteed. A report that fails is logged and counted, and the next one has the newer values.

    Args:
        registry: the registry to report.
        interval: seconds between two reports, from 0.01 to 3600.
        include, exclude: shell patterns of metric names. Metrics that match an `include` and no `exclude` are reported.
        attributes: the attributes to report (count, m1_rate, p99 …); None reports all.
        own_metrics: whether the registry has metrics of this reporter, as `tallystream.reporter.*`.

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
        own_metrics: bool = True,
    ) -> None:
        self.attributes = AttributeFilter(attributes)
        super().__init__(registry, interval=interval, include=include, exclude=exclude, own_metrics=own_metrics)
        self.registry.keep_samples()

    @abstractmethod
    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        """Write one snapshot, taken at `ts_ms` (epoch ms), and return the number of bytes."""

    def _report(self) -> bool:
        begin = self._monotonic()
        metrics = self._filter.apply(self.registry.snapshot())
        size = self._write(metrics, self.registry.clock.wall_ms())
        if self._own:
            self._own.sent.inc()
            self._own.bytes.inc(size)
            self._own.duration.update(self._monotonic() - begin)
        return False
