"""The internal metrics of a query: their list, and how they follow from Spark's progress of a batch.

One list serves `/metrics`, the reporter and docs/health.md. In Prometheus, `tallystream.table.records` is
`tallystream_table_records_total`: dots become underscores, a counter ends in `_total`, a timer in `_seconds`. The
progress of a batch is Spark's StreamingQueryProgress as JSON ("Monitoring Streaming Queries", Structured Streaming
Programming Guide).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tallystream import ExponentiallyDecaying, record
from tallystream.clock import SYSTEM_CLOCK, Clock
from tallystream.decoding import json_decoder
from tallystream.registry import MetricRegistry
from tallystream_aggregator.health.exposition import Family, Sample
from tallystream_aggregator.table.rows import ShardRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

APP = "tallystream"

_SUFFIX = {"counter": "_total", "total": "_total", "timer": "_seconds", "gauge": ""}
_KIND: dict[str, Literal["counter", "gauge", "summary"]] = {
    "counter": "counter",
    "total": "counter",
    "timer": "summary",
    "gauge": "gauge",
}
_QUANTILES = {"p50": "0.5", "p75": "0.75", "p95": "0.95", "p98": "0.98", "p99": "0.99", "p999": "0.999"}


class InternalMetric(NamedTuple):
    """One internal metric. It has the label `command`, and those in `labels`.

    A counter counts what this process did. A total counts what the table has seen since it began, across restarts. It
    is reported as a gauge, because the sum over the lives of an aggregator would count it more than once.
    """

    name: str
    kind: Literal["counter", "total", "gauge", "timer"]
    help: str
    labels: tuple[str, ...] = ()

    @property
    def exposed(self) -> str:
        """The name in Prometheus."""
        return self.name.replace(".", "_") + _SUFFIX[self.kind]


_PARTITION = ("topic", "partition")
INTERNAL_METRICS = (
    InternalMetric("tallystream.alive", "gauge", "1 when /healthz returns 200, 0 otherwise."),
    InternalMetric("tallystream.ready", "gauge", "1 when /readyz returns 200, 0 otherwise."),
    InternalMetric("tallystream.epoch", "gauge", "Epoch of the writer of the newest batch."),
    InternalMetric(
        "tallystream.last_check_age_seconds",
        "gauge",
        "Seconds since the query finished a batch or checked for records.",
    ),
    InternalMetric("tallystream.batches", "counter", "Batches that this process finished."),
    InternalMetric("tallystream.batch.number", "gauge", "Number of the newest batch in the checkpoint."),
    InternalMetric("tallystream.batch.time_seconds", "gauge", "Start of the newest batch, in epoch seconds."),
    InternalMetric(
        "tallystream.batch.records_per_second", "gauge", "Records of the newest batch, divided by its duration."
    ),
    InternalMetric(
        "tallystream.batch.duration",
        "timer",
        "Duration of the batches by Spark's phase. The phase triggerExecution is the whole batch.",
        ("phase",),
    ),
    InternalMetric("tallystream.input.records", "counter", "Records that this process read."),
    InternalMetric("tallystream.offset", "gauge", "Next offset that the query reads.", _PARTITION),
    InternalMetric(
        "tallystream.end_offset", "gauge", "End of the partition at the start of the newest batch.", _PARTITION
    ),
    InternalMetric("tallystream.state.rows", "gauge", "Values in Spark's state store."),
    InternalMetric("tallystream.state.memory_bytes", "gauge", "Memory of Spark's state store, in bytes."),
    InternalMetric("tallystream.table.records", "total", "Records of any kind that the table has read since it began."),
    InternalMetric(
        "tallystream.table.stale", "total", "Records among them that were duplicates, or older than the table's rows."
    ),
    InternalMetric("tallystream.table.dead_letters", "total", "Records and metrics that were sent to metrics-dead."),
    InternalMetric("tallystream.table.forgotten", "total", "Forgotten lives. Their counts stay in the sums."),
    InternalMetric("tallystream.table.lives", "gauge", "Lives, living and silent ones."),
    InternalMetric("tallystream.table.living", "gauge", "Lives with a record within three reporting intervals."),
    InternalMetric("tallystream.table.instances", "gauge", "Instance IDs of the living lives."),
    InternalMetric("tallystream.table.rows", "gauge", "Rows of the table: metrics of lives."),
    InternalMetric(
        "tallystream.table.metrics", "gauge", "Metrics that the table has ever seen, by app, name and tags."
    ),
    InternalMetric("tallystream.table.state_bytes", "gauge", "Bytes of the state that the newest batch wrote."),
    InternalMetric(
        "tallystream.table.clock_seconds", "gauge", "Newest append time of the partition, in epoch seconds.", _PARTITION
    ),
    InternalMetric("tallystream.ship.points", "counter", "Points that this process wrote to the store."),
    InternalMetric("tallystream.ship.rejected", "counter", "Points that the store rejected permanently."),
    InternalMetric("tallystream.ship.unreadable", "counter", "Records that this process could not decode."),
    InternalMetric(
        "tallystream.ship.store_unavailable", "gauge", "1 while the store is unavailable and points wait, 0 otherwise."
    ),
)
BY_NAME = {metric.name: metric for metric in INTERNAL_METRICS}


class InternalMetrics:
    """The internal metrics of one command. Thread-safe. A name that is not in `INTERNAL_METRICS` raises KeyError."""

    def __init__(self, command: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.registry = MetricRegistry(APP, clock=clock, sampling=ExponentiallyDecaying())
        self.command = command

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge or a total."""
        self.registry.gauge(BY_NAME[name].name, tags=self._tags(labels)).set(value)

    def set_function(self, name: str, function: Callable[[], float]) -> None:
        """Set the function whose result is the gauge's value whenever it is read."""
        self.registry.gauge(BY_NAME[name].name, function, tags=self._tags({}))

    def add(self, name: str, n: int) -> None:
        """Add to a counter."""
        self.registry.counter(BY_NAME[name].name, tags=self._tags({})).inc(n)

    def raise_to(self, name: str, total: int) -> None:
        """Raise a counter to `total`."""
        counter = self.registry.counter(BY_NAME[name].name, tags=self._tags({}))
        counter.inc(total - counter.count)

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Record a duration in a timer."""
        self.registry.timer(BY_NAME[name].name, tags=self._tags(labels)).update(seconds)

    def families(self) -> list[Family]:
        """Return the current values, in the order of `INTERNAL_METRICS`."""
        found: dict[str, list[record.Metric]] = {}
        for metric in self.registry.snapshot():
            found.setdefault(metric.name, []).append(metric)
        return [
            Family(
                metric.exposed, _KIND[metric.kind], metric.help, [s for m in found[metric.name] for s in _samples(m)]
            )
            for metric in INTERNAL_METRICS
            if metric.name in found
        ]

    def _tags(self, labels: dict[str, str]) -> dict[str, str]:
        return {"command": self.command, **labels}


def _samples(metric: record.Metric) -> Iterable[Sample]:
    if isinstance(metric, record.Timer):
        for field, quantile in _QUANTILES.items():
            value = getattr(metric, field)
            if value is not None:
                yield Sample(value, {**metric.tags, "quantile": quantile})
        yield Sample(metric.sum, metric.tags, "_sum")
        yield Sample(metric.count, metric.tags, "_count")
    elif isinstance(metric, record.Counter):
        yield Sample(metric.count, metric.tags)
    elif isinstance(metric, record.Gauge):
        yield Sample(metric.value, metric.tags)


OBSERVED = "table"
"""The name of the observed metrics with the shards' records of a batch: `{"table": {"shards": [JSON, …]}}`."""

READ = "read"
"""The name of the observed metrics of a catch-up batch: `{"read": {"records": N}}`, including compacted records."""

_TOTALS = {"records": "records", "stale": "stale", "dead_letters": "dead", "forgotten": "forgotten"}
_NOW = ("lives", "living", "instances", "rows", "state_bytes")
_decode_shard = json_decoder(ShardRow)


class Progress:
    """Updates the internal metrics after each batch. A shard without records in a batch keeps its last values."""

    def __init__(self, internal_metrics: InternalMetrics) -> None:
        self._metrics = internal_metrics
        self._shards: dict[int, ShardRow] = {}
        self._batch: int | None = None

    def observe(self, progress: Mapping[str, Any], *, counts: bool = True) -> int | None:
        """Record one progress event. Return the batch's number, None if the trigger had no records.

        `counts` is False if `watched` counts the records.

        Raises:
            KeyError, ValueError, msgspec.DecodeError: the event does not have the format that Spark writes.
        """
        durations, number = progress["durationMs"], int(progress["batchId"])
        if "addBatch" not in durations:  # a trigger without records
            return None
        internal_metrics = self._metrics
        if number != self._batch:
            internal_metrics.add("tallystream.batches", 1)
            if counts:
                internal_metrics.add("tallystream.input.records", _records(progress))
            self._batch = number
        internal_metrics.set("tallystream.batch.number", number)
        internal_metrics.set(
            "tallystream.batch.time_seconds", datetime.fromisoformat(progress["timestamp"]).timestamp()
        )
        if took_ms := durations.get("triggerExecution"):
            internal_metrics.set("tallystream.batch.records_per_second", _records(progress) * 1000 / took_ms)
        for phase, ms in durations.items():
            internal_metrics.observe("tallystream.batch.duration", ms / 1000, phase=phase)
        self._offsets(progress["sources"])
        operators = progress.get("stateOperators") or []
        if operators:
            internal_metrics.set("tallystream.state.rows", sum(int(one["numRowsTotal"]) for one in operators))
            internal_metrics.set(
                "tallystream.state.memory_bytes", sum(int(one["memoryUsedBytes"]) for one in operators)
            )
        observed = (progress.get("observedMetrics") or {}).get(OBSERVED, {}).get("shards") or ()
        self._table([_decode_shard(text) for text in observed])
        return number

    def watched(
        self,
        positions: Mapping[str, Mapping[str, int]],
        ends: Mapping[str, Mapping[str, int]],
        shards: Iterable[ShardRow],
        *,
        records: int,
    ) -> None:
        """Record the published positions, the ends of the partitions, the rows of the shards, and what was read."""
        self._metrics.raise_to("tallystream.input.records", records)
        self._offsets([{"endOffset": positions, "latestOffset": ends}])
        self._table(list(shards))

    @property
    def living(self) -> int | None:
        """The number of living lives, None before the first batch."""
        return sum(row.living for row in self._shards.values()) if self._shards else None

    def _offsets(self, sources: Iterable[Mapping[str, Any]]) -> None:
        for source in sources:
            for name, ends in (("tallystream.offset", "endOffset"), ("tallystream.end_offset", "latestOffset")):
                for topic, partitions in (source.get(ends) or {}).items():
                    for partition, offset in partitions.items():
                        self._metrics.set(name, int(offset), topic=topic, partition=str(partition))

    def _table(self, rows: Sequence[ShardRow]) -> None:
        if not rows:
            return
        self._shards = self._shards | {row.shard: row for row in rows}  # a new dict: other threads read it
        shards, internal_metrics = self._shards.values(), self._metrics
        for name, field in _TOTALS.items():
            internal_metrics.set(f"tallystream.table.{name}", sum(getattr(row, field) for row in shards))
        for name in _NOW:
            internal_metrics.set(f"tallystream.table.{name}", sum(getattr(row, name) for row in shards))
        # Shards share metrics, so with several shards this is a lower bound.
        internal_metrics.set("tallystream.table.metrics", max(row.metrics for row in shards))
        internal_metrics.set("tallystream.epoch", max(row.epoch for row in shards))
        clocks: dict[str, int] = {}
        for row in shards:
            clocks |= {name: max(clock, clocks.get(name, 0)) for name, clock in row.clocks.items()}
        for name, clock in clocks.items():
            topic, _, partition = name.rpartition(":")
            internal_metrics.set("tallystream.table.clock_seconds", clock / 1000, topic=topic, partition=partition)


def _records(progress: Mapping[str, Any]) -> int:
    read = (progress.get("observedMetrics") or {}).get(READ)
    return int(progress["numInputRows"] if read is None else read["records"] or 0)
