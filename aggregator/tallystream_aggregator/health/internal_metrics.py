"""The internal metrics of a command: their list, and how those of the aggregator follow from what it published.

One list serves `/metrics`, the reporter and docs/configuration.md. In Prometheus, `tallystream.table.records` is
`tallystream_table_records_total`: dots become underscores, a counter ends in `_total`, a timer in `_seconds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from prometheus_client import Metric

from tallystream import record
from tallystream.clock import SYSTEM_CLOCK, Clock
from tallystream.registry import MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tallystream_aggregator.stream.broker import Place
    from tallystream_aggregator.stream.epochs import EpochRow
    from tallystream_aggregator.table.rows import ShardRow

APP = "tallystream"

_EXPOSED = {
    "counter": ("counter", "_total"),
    "total": ("counter", "_total"),
    "timer": ("summary", "_seconds"),
    "gauge": ("gauge", ""),
}
"""Kind → type and suffix in Prometheus."""


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
        return self.name.replace(".", "_") + _EXPOSED[self.kind][1]


_PARTITION = ("topic", "partition")
INTERNAL_METRICS = (
    InternalMetric("tallystream.ready", "gauge", "1 while the command is ready, as /readyz says, 0 otherwise."),
    InternalMetric("tallystream.generation", "gauge", "Generation of the driver whose tasks published last."),
    InternalMetric(
        "tallystream.published_age_seconds",
        "gauge",
        "Seconds since the published positions moved, 0 while nothing waits to be read.",
    ),
    InternalMetric(
        "tallystream.epoch.duration",
        "timer",
        "Duration of the epochs by phase: work (read, apply, publish), wait (for records).",
        ("phase",),
    ),
    InternalMetric("tallystream.steps", "counter", "Transactions that the loops committed."),
    InternalMetric("tallystream.restarts", "counter", "Times that a loop began again after an error."),
    InternalMetric("tallystream.input.records", "counter", "Records that this process read."),
    InternalMetric("tallystream.offset", "gauge", "Position up to which everything is published.", _PARTITION),
    InternalMetric("tallystream.end_offset", "gauge", "End of the partition.", _PARTITION),
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
    InternalMetric("tallystream.table.state_bytes", "gauge", "Bytes of the state that the newest epoch wrote."),
    InternalMetric("tallystream.ship.points", "counter", "Points that this process wrote to the store."),
    InternalMetric("tallystream.ship.rejected", "counter", "Points that the store rejected permanently."),
    InternalMetric("tallystream.ship.unreadable", "counter", "Records that this process could not decode."),
    InternalMetric(
        "tallystream.ship.store_unavailable", "gauge", "1 while the store is unavailable and points wait, 0 otherwise."
    ),
)
BY_NAME = {metric.name: metric for metric in INTERNAL_METRICS}


class InternalMetrics:
    """The internal metrics of one command. Thread-safe. A name that is not in `INTERNAL_METRICS` raises KeyError.

    `registry` is that of another command in this process, None for a new one.
    """

    def __init__(self, command: str, clock: Clock = SYSTEM_CLOCK, registry: MetricRegistry | None = None) -> None:
        self.registry = registry or MetricRegistry(APP, clock=clock)
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

    def families(self) -> Iterator[Metric]:
        """Yield the current values as families of Prometheus, in the order of `INTERNAL_METRICS`."""
        found: dict[str, list[record.Metric]] = {}
        for metric in self.registry.snapshot():
            found.setdefault(metric.name, []).append(metric)
        for one in INTERNAL_METRICS:
            family = Metric(one.exposed.removesuffix("_total"), one.help, _EXPOSED[one.kind][0])
            for metric in found.get(one.name, ()):
                for suffix, value in _values(metric).items():
                    family.add_sample(one.exposed + suffix, metric.tags, value)
            if family.samples:
                yield family

    def _tags(self, labels: dict[str, str]) -> dict[str, str]:
        return {"command": self.command, **labels}


def _values(metric: record.Metric) -> dict[str, float]:
    """Return the values of a metric by the suffixes of their names."""
    if isinstance(metric, record.Timer):
        return {"_count": metric.count, "_sum": metric.sum or 0.0}
    if isinstance(metric, record.Counter):
        return {"": metric.count}
    return {"": metric.value} if isinstance(metric, record.Gauge) else {}


_OF_SHARDS = ("records", "stale", "dead_letters", "forgotten", "lives", "living", "instances", "rows")
"""The metrics of the table that are sums over its shards."""


class Progress:
    """Updates the internal metrics of the aggregator."""

    def __init__(self, internal_metrics: InternalMetrics, clock: Clock = SYSTEM_CLOCK) -> None:
        self._metrics = internal_metrics
        self._clock = clock
        self._published: Mapping[Place, int] = {}
        self._moved_s: float | None = None

    def epoch(self, rows: Sequence[EpochRow]) -> None:
        """Record a finished epoch of all loops. Its time is that of the busiest one."""
        self._metrics.add("tallystream.steps", sum(row.steps for row in rows))
        self._metrics.add("tallystream.restarts", sum(row.restarts for row in rows))
        seconds = max((row.seconds for row in rows), default=0.0)
        waited_s = min((row.waited_s for row in rows), default=0.0)
        for phase, value in (("work", max(seconds - waited_s, 0.0)), ("wait", waited_s)):
            self._metrics.observe("tallystream.epoch.duration", value, phase=phase)
        self._metrics.set("tallystream.table.state_bytes", sum(row.state_bytes for row in rows))

    def watched(
        self,
        positions: Mapping[Place, int],
        ends: Mapping[Place, int],
        shards: Sequence[ShardRow],
        *,
        records: int,
        generation: int,
    ) -> None:
        """Record the published positions, the ends of the partitions, the rows of all shards, and what was read."""
        self._metrics.set("tallystream.generation", generation)
        self._metrics.raise_to("tallystream.input.records", records)
        for name, offsets in (("tallystream.offset", positions), ("tallystream.end_offset", ends)):
            for (topic, partition), offset in offsets.items():
                self._metrics.set(name, offset, topic=topic, partition=str(partition))
        if self._moved_s is None:
            self._metrics.set_function("tallystream.published_age_seconds", self._published_age_s)
        if self._moved_s is None or positions != self._published or positions == ends:
            self._published, self._moved_s = positions, self._clock.monotonic()
        self._table(shards)

    def _published_age_s(self) -> float:
        return 0.0 if self._moved_s is None else self._clock.monotonic() - self._moved_s

    def _table(self, shards: Sequence[ShardRow]) -> None:
        if not shards:
            return
        internal_metrics = self._metrics
        for name in _OF_SHARDS:
            field = "dead" if name == "dead_letters" else name
            internal_metrics.set(f"tallystream.table.{name}", sum(getattr(row, field) for row in shards))
        # Shards share metrics, so with several shards this is a lower bound.
        internal_metrics.set("tallystream.table.metrics", max(row.metrics for row in shards))
