"""The loads: steps of records, and the number of updates in each. They need no Kafka and no Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from benchmarks.aggregator.load import Fleet, Snapshots, Updates
from tallystream import record
from tallystream.ulid import new_ulid
from tallystream_aggregator.table.records.decode import CLOCK_KEY, Record, clock_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

METRICS = 100
"""Metrics of a snapshot."""


OTLP_TOPIC = "otlp_metrics"


class Step(NamedTuple):
    """The records of one step, the time at which the table reads them, and the number of updates in them.

    `snapshots` has the same updates as snapshots, if the records are not snapshots.
    """

    now_ms: int
    records: list[Record]
    updates: int
    snapshots: list[Record] | None = None


def counters(records: int, steps: int) -> Iterator[Step]:
    """Yield steps of snapshots of 100 counters. Each step has one record from each of `records` instances."""
    return _fleet(Fleet(instances=records, metrics=METRICS), steps)


def histograms(records: int, steps: int) -> Iterator[Step]:
    """Yield the same steps, but 20 of the 100 metrics are histograms with a sketch."""
    return _fleet(Fleet(instances=records, metrics=METRICS, histograms=20), steps)


def otlp(records: int, steps: int) -> Iterator[Step]:
    """Yield the counters as OpenTelemetry requests in protobuf, with one attribute each.

    Ten counters of a process have the same start time.
    """
    starts: dict[str, int] = {}
    for step in counters(records, steps):
        values = []
        for one in step.records:
            snapshot = record.decode(one.value or b"")
            start_ns = starts.setdefault(snapshot.life, step.now_ms * 1_000_000)
            values.append(one._replace(topic=OTLP_TOPIC, value=_otlp_batch(one, snapshot, start_ns, step.now_ms)))
        yield Step(step.now_ms, values, step.updates, step.records)


def _otlp_batch(one: Record, snapshot: record.Snapshot, start_ns: int, now_ms: int) -> bytes:
    data = pb.MetricsData()
    resource = data.resource_metrics.add()
    for name, text in (("service.name", snapshot.app), ("service.instance.id", (one.key or b"").decode())):
        resource.resource.attributes.add(key=name).value.string_value = text
    scope = resource.scope_metrics.add()
    for number, metric in enumerate(snapshot.metrics):
        added = scope.metrics.add(name=metric.name)
        added.sum.is_monotonic = True
        added.sum.aggregation_temporality = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
        point = added.sum.data_points.add(time_unix_nano=now_ms * 1_000_000 + 1_000_000)
        point.start_time_unix_nano = start_ns + number // 10 * 80_000
        point.as_int = metric.count if isinstance(metric, record.Counter) else 0
        point.attributes.add(key="topic").value.string_value = "orders"
    return data.SerializeToString()


def silence(records: int, steps: int) -> Iterator[Step]:
    """Yield a step of `counters`, then one with a clock record by which all instances fall silent, and so on.

    Each counter of an instance that falls silent counts as an update.
    """
    ahead_ms = 0
    for step in counters(records, steps // 2):
        now_ms = step.now_ms + ahead_ms
        yield Step(now_ms, [one._replace(timestamp_ms=now_ms) for one in step.records], step.updates)
        ahead_ms += 60_000
        later_ms = step.now_ms + ahead_ms
        clock = step.records[-1]._replace(timestamp_ms=later_ms, key=CLOCK_KEY, value=clock_value(later_ms))
        yield Step(later_ms, [clock], step.updates)


def new_metrics(records: int, steps: int) -> Iterator[Step]:
    """Yield steps of `counters`, and snapshots of one more instance with 100 new metrics each.

    There is one such snapshot for every 25 records, so that the instance reaches the limit of metrics in a life.
    """
    lives, seq = _Lives(), 0
    for step in counters(records, steps):
        for _ in range(max(1, records // 25)):
            seq += 1
            lives.publish(step.now_ms, "new-metrics", [f"new.{seq}.{number}" for number in range(METRICS)], seq)
        yield lives.join(step)


def layouts(records: int, steps: int) -> Iterator[Step]:
    """Yield snapshots of instances that all have different sets of metrics. There are 20 instances for each record.

    Each instance has 99 of 100 common metrics, and one metric that it shares with up to 99 others.
    """
    lives, instances = _Lives(), 20 * records
    now_ms = _now_ms()
    for number in range(steps):
        now_ms += 1000
        for report in range(number * records, (number + 1) * records):
            at = report % instances
            names = [f"m.{metric}" for metric in range(METRICS) if metric != at % METRICS]
            lives.publish(now_ms, f"app-{at}", [*names, f"own.{at // METRICS}"], seq=report // instances + 1)
        yield lives.join(Step(now_ms, [], 0))


def poison(records: int, steps: int) -> Iterator[Step]:
    """Yield steps of `counters` in which every hundredth record is not JSON, or has counts that decrease."""
    for step in counters(records, steps):
        poisoned = [_corrupt(one, at // 100 % 2 == 0) if at % 100 == 0 else one for at, one in enumerate(step.records)]
        yield Step(step.now_ms, poisoned, step.updates)


def restarts(records: int, steps: int) -> Iterator[Step]:
    """Yield the snapshots of one instance that restarts before each snapshot, so that each record has its own life.

    A life starts every second, as under a supervisor. Each record has 100 counters.
    """
    lives, names, now_ms = _Lives(), [f"m.{number}" for number in range(METRICS)], _now_ms()
    for _ in range(steps):
        for _ in range(records):
            now_ms += 1000
            lives.publish(now_ms, "restarting", names)
        yield lives.join(Step(now_ms, [], 0))


class Load(NamedTuple):
    """`make` returns the steps for (records of a step, number of steps). `steps` is the default number."""

    make: Callable[[int, int], Iterable[Step]]
    steps: int = 12


LOADS = {
    "counters": Load(counters),
    "otlp": Load(otlp),
    "histograms": Load(histograms),
    "silence": Load(silence),
}
HOSTILE = {
    "new-metrics": Load(new_metrics),
    "layouts": Load(layouts, 40),  # each of 10,000 instances reports twice
    "poison": Load(poison),
    "restarts": Load(restarts, 173),  # one life a second for a day
}
ALL = LOADS | HOSTILE


def _now_ms() -> int:
    return int(time.time() * 1000)


def _fleet(fleet: Fleet, steps: int) -> Iterator[Step]:
    now_ms = _now_ms()
    updates, snapshots, offset = Updates(fleet), Snapshots(fleet, now_ms, every_ms=10_000), 0
    for number in range(steps):
        at_ms = now_ms + 10_000 * number
        values = list(snapshots.render(updates.take(fleet.rows)))
        records = [Record("metrics", 0, place, at_ms, key, value) for place, (key, value) in enumerate(values, offset)]
        offset += len(records)
        yield Step(at_ms, records, fleet.rows)


class _Lives:
    """Creates snapshots of counters in a separate partition. A snapshot with seq 1 starts a new life."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._lives: dict[str, str] = {}
        self._offset = self._updates = 0

    def publish(self, now_ms: int, instance: str, names: list[str], seq: int = 1) -> None:
        if seq == 1:
            self._lives[instance] = new_ulid(now_ms)
        head: dict[str, Any] = {"life": self._lives[instance], "seq": seq, "prev": now_ms - 1000 if seq > 1 else None}
        listed: list[record.Metric] = [record.Counter(name=name, count=seq) for name in names]
        snapshot = record.Snapshot(app="hostile", part=0, ts=now_ms, every_ms=1000, final=False, metrics=listed, **head)
        value = record.encode(snapshot)
        self._records.append(Record("metrics", 1, self._offset, now_ms, instance.encode(), value))
        self._offset += 1
        self._updates += len(names)

    def join(self, step: Step) -> Step:
        """Return the step with the snapshots that were published since the last call."""
        joined = Step(step.now_ms, [*step.records, *self._records], step.updates + self._updates)
        self._records, self._updates = [], 0
        return joined


def _corrupt(one: Record, unreadable: bool) -> Record:
    if unreadable:
        return one._replace(value=(one.value or b"")[:-100])
    snapshot = record.decode(one.value or b"")
    lower = [msgspec.structs.replace(metric, count=0) for metric in snapshot.metrics]
    return one._replace(value=record.encode(msgspec.structs.replace(snapshot, metrics=lower)))
