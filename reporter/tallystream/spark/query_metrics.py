"""The metrics of a streaming query."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream.metric_factory import MetricFactory
    from tallystream.spark.batches import Batch, Uncounted


class QueryMetrics:
    """The metrics of the queries of one name. All have the tag `query`; docs/guides/spark.md lists them."""

    def __init__(self, registry: MetricFactory, query: str) -> None:
        self._registry = registry.child("spark", {"query": query})
        self._rows = self._registry.counter("rows")
        self._batches = self._registry.counter("batches")
        self._duration = self._registry.timer("batch.duration")
        self._failures = self._registry.counter("failures")
        self._positions: set[tuple[str, int]] = set()

    def add(self, batch: Batch, uncounted: Uncounted) -> None:
        """Count a batch, and batches before it that were not reported, in one step."""
        self._colocate(uncounted)
        with self._registry.atomic():
            self._rows.inc(batch.rows)
            self._batches.inc(uncounted.batches)
            self._duration.update(batch.seconds)
            self._registry.gauge("state.rows").set(batch.state_rows)
            self._registry.gauge("state.bytes").set(batch.state_bytes)
            if batch.watermark is not None:
                self._registry.gauge("watermark").set(batch.watermark)
            if uncounted.spans:
                self._registry.counter("records").inc(uncounted.records)
            for (topic, partition), (start, end) in uncounted.spans.items():
                self._registry.position(topic, partition, name="records.position").advance(start, end)

    def fail(self) -> None:
        """Count a query that ended with an exception."""
        self._failures.inc()

    def _colocate(self, uncounted: Uncounted) -> None:
        new = [at for at in uncounted.spans if at not in self._positions]
        if new:
            positions = [self._registry.position(*at, name="records.position") for at in new]
            self._registry.colocate(self._registry.counter("records"), *positions)
            self._positions.update(new)
