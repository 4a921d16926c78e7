"""OTLP metrics for tests: applications, batches as the Collector forms them, the sums of the table and of verify."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf import json_format
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from support.steps import Published, run
from tallystream.record import bounds_tag
from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.sums import VALUES, MetricId, Sum
from tallystream_aggregator.table import Record, State, Table, TableSettings, pack, unpack
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import parse, unequal
from tallystream_aggregator.verify.replay import Replay

CUMULATIVE = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
DELTA = pb.AGGREGATION_TEMPORALITY_DELTA
BEGIN_NS = 1_700_000_000_000_000_000
BEGIN_MS = BEGIN_NS // 1_000_000
SECOND_NS = 1_000_000_000
TOPIC = "otlp_metrics"
APP = {"service__name": "shop", "service__instance__id": "app-1"}

Sums = dict[str, dict[str, Any]]


def attributes(**values: Any) -> list[KeyValue]:
    """Return attributes. Two underscores in a name mean a dot."""
    return [KeyValue(key=name.replace("__", "."), value=any_value(value)) for name, value in values.items()]


def any_value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, list):
        array = AnyValue()
        array.array_value.values.extend(any_value(one) for one in value)
        return array
    return AnyValue(string_value=value)


def number(value: float, start_ns: int = BEGIN_NS, time_ns: int = BEGIN_NS + SECOND_NS, **more: Any) -> Any:
    """Return a point with a number, and optionally `attributes` and `flags`."""
    kind = {"as_int": value} if isinstance(value, int) else {"as_double": value}
    return pb.NumberDataPoint(start_time_unix_nano=start_ns, time_unix_nano=time_ns, **kind, **more)


def counter(name: str, *points: Any, temporality: Any = CUMULATIVE, monotonic: bool = True) -> pb.Metric:
    """Return a sum."""
    data = pb.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=monotonic)
    return pb.Metric(name=name, sum=data)


def gauge(name: str, *points: Any) -> pb.Metric:
    return pb.Metric(name=name, gauge=pb.Gauge(data_points=points))


def resource_metrics(metrics: Iterable[pb.Metric], scope: str = "tests", **resource: Any) -> pb.ResourceMetrics:
    """Return the metrics of one resource and scope."""
    return pb.ResourceMetrics(
        resource=Resource(attributes=attributes(**resource)),
        scope_metrics=[pb.ScopeMetrics(scope=InstrumentationScope(name=scope), metrics=metrics)],
    )


def encode(*resources: pb.ResourceMetrics, as_json: bool = False) -> bytes:
    """Return the value of a record in the form of the Collector's Kafka exporter."""
    data = pb.MetricsData(resource_metrics=resources)
    text: str = json_format.MessageToJson(data, indent=None)
    return text.encode() if as_json else data.SerializeToString()


class Appended(NamedTuple):
    """A record of the OTLP topic."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


@dataclass
class Process:
    """A process of an application. Each of its streams has a start time, and grows."""

    instance: str
    streams: dict[tuple[str, str], int] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)


class Fleet:
    """Applications that count, export and restart at random, and a Collector that repeats, divides and delays batches.

    `counted` has the counts of all streams in acknowledged records, by name and topic. The sums must equal them.
    """

    def __init__(self, seed: int, instances: int = 3, partitions: int = 2, begin_ns: int = BEGIN_NS) -> None:
        self.chance = random.Random(seed)
        self.now_ns = begin_ns
        self.partitions = partitions
        self.records: list[Appended] = []
        self._processes = [Process(f"app-{number}") for number in range(instances)]
        self._delayed: list[bytes] = []
        self._newest: dict[tuple[str, int, str, str], tuple[int, int]] = {}

    @property
    def counted(self) -> Counter[tuple[str, str]]:
        """The newest count of each stream, added by (name, topic)."""
        total: Counter[tuple[str, str]] = Counter()
        for (_, _, name, topic), (_, count) in self._newest.items():
            total[name, topic] += count
        return total

    def step(self) -> None:
        """Let one application count and export, or let a random fault happen."""
        chance = self.chance
        self.now_ns += chance.choice([1, 80_000, SECOND_NS, 60 * SECOND_NS])
        index = chance.randrange(len(self._processes))
        action = chance.choices(["export", "restart", "again", "delayed"], [70, 8, 12, 10])[0]
        if action == "restart":
            self._processes[index] = Process(self._processes[index].instance)
        elif action == "again" and self.records:
            self._append(chance.choice(self.records).value)
        elif action == "delayed" and self._delayed:
            self._append(self._delayed.pop(chance.randrange(len(self._delayed))))
        else:
            self._export(self._processes[index])

    def end(self) -> None:
        """Append the delayed records."""
        while self._delayed:
            self._append(self._delayed.pop())

    def _export(self, process: Process) -> None:
        chance = self.chance
        for _ in range(chance.randint(1, 6)):
            stream = chance.choice(["requests", "errors", "bytes"]), chance.choice(["a", "b"])
            if stream not in process.streams:
                self.now_ns += 80_000  # each instrument has its own start time
                process.streams[stream] = self.now_ns
            process.counts[stream] += chance.choice([0, 1, 5, 1000])
        self.now_ns += 1_000
        metrics = [
            counter(
                name,
                number(process.counts[name, topic], start_ns, self.now_ns, attributes=attributes(topic=topic)),
            )
            for (name, topic), start_ns in process.streams.items()
        ]
        metrics.append(gauge("load", number(chance.random(), 0, self.now_ns)))
        chance.shuffle(metrics)
        cut = chance.choice([len(metrics), chance.randint(1, len(metrics))])  # the Collector may divide a batch
        for part in (metrics[:cut], metrics[cut:]):
            if part:
                value = encode(
                    resource_metrics(part, service__name="shop", service__instance__id=process.instance),
                    as_json=chance.random() < 0.3,
                )
                if self._delayed and chance.random() < 0.3 and b"{" not in (value[:1], self._delayed[-1][:1]):
                    value += self._delayed.pop()  # the resources of both: the Collector merges batches, too
                if chance.random() < 0.15:
                    self._delayed.append(value)
                else:
                    self._append(value)

    def _append(self, value: bytes) -> None:
        data = pb.MetricsData()
        if value.startswith(b"{"):
            json_format.Parse(value, data)
        else:
            data.ParseFromString(value)
        for resource in data.resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.sum.data_points:
                    stream = (
                        resource.resource.attributes[1].value.string_value,
                        point.start_time_unix_nano,
                        metric.name,
                        point.attributes[0].value.string_value,
                    )
                    self._newest[stream] = max(self._newest.get(stream, (0, 0)), (point.time_unix_nano, point.as_int))
        partition = self.chance.randrange(self.partitions)
        offset = sum(record.partition == partition for record in self.records)
        timestamp_ms = self.now_ns // 1_000_000
        self.records.append(Appended(partition, offset, timestamp_ms, self.chance.choice([None, b"\xff" * 16]), value))


def apply(
    *values: bytes | tuple[bytes, bytes | None], table: Table | None = None, partitions: int = 1, **limits: int
) -> Published:
    """Return what a new table publishes of records: the newest sums, and all else. A value may have a key before it.

    The records are appended a second apart from the third second on, and applied one after the other. Verify has the
    same sums and events, as many dead letters of each record, and counts the same bytes of memory.
    """
    settings: dict[str, Any] = {"otlp_topics": (TOPIC,), **limits}
    table, replay = table or Table(State(), TableSettings(**settings)), Replay(Settings(**settings))
    published, newest = Published([], [], [], [], [], []), dict[MetricId, Sum]()
    for record in _records(values, partitions):
        step = run(table, [record])
        refused = replay.apply(record.partition_name, record.timestamp_ms, record.key, record.value)
        assert len(step.dead) == len(refused), (record.value, step.dead, refused)
        newest |= {total.metric: total for total in (*step.totals, *step.instances)}
        published.dead.extend(step.dead)
        published.events.extend(step.events)
        published.rows.extend(step.rows)
    made: list[Any] = [*published.dead, *published.events, *published.rows]
    for one in made:
        json.loads(one.value() or b"{}")
    events = [(one.kind, one.app, one.instance, one.life, one.ts, one.detail) for one in published.events]
    assert sorted(events) == sorted(replay.noted.events), values
    replayed = replay.sums()
    assert len(newest) == len(replayed), values
    for total in newest.values():
        identity, fields, _ = parse(total.key(), total.value())
        assert not unequal(fields, replayed[identity]), (identity, values)
    (shard,) = replay._shards
    assert {app or None: used for app, used in shard.room._bytes.items() if used} == table._rows.size._used
    assert unpack(pack(table.state)) == table.state
    return published._replace(
        totals=[total for total in newest.values() if total.type != INSTANCES],
        instances=[total for total in newest.values() if total.type == INSTANCES],
    )


def _records(values: Iterable[bytes | tuple[bytes, bytes | None]], partitions: int) -> list[Record]:
    """Return records of these values, or keys and values, in the order in which the partitions are read."""
    pairs = [one if isinstance(one, tuple) else (None, one) for one in values]
    records = [Record(TOPIC, n % partitions, n, BEGIN_MS + 3000 + 1000 * n, *pair) for n, pair in enumerate(pairs)]
    return sorted(records, key=lambda one: one.partition)


def sums_of(changes: Published) -> Sums:
    """Return the fields of each sum that have a value, by its type, name and tags as text."""
    fields = (*VALUES, "bounds", "counts")
    return {
        named(kind, name, tags): {name: value for name in fields if (value := getattr(total, name)) not in (None, [])}
        for total in changes.totals
        for _, name, kind, tags in [total.metric]
    }


def named(kind: str, name: str, tags: Any) -> str:
    return f"{kind} {name}" + "".join(f" {tag}={text}" for tag, text in tags)


def buckets(*bounds: float) -> str:
    """Return how explicit buckets of the metric `t` with these bounds are named."""
    return f"buckets t bounds={bounds_tag(struct.pack(f'<{len(bounds)}d', *bounds))}"
