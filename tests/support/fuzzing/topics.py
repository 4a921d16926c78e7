"""Readers of bytes from Kafka: records, sketches, OTLP, and what the aggregator's own topics and its state have."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from unittest import mock

import msgspec
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.otlp import apply as apply_otlp
from support.replayed import TopicRecord, replay
from support.runs import RULES, UNLIMITED, new_tables, require_equal
from support.simulation.checkpoints import Batch
from support.steps import BEGIN_MS, FIRST, SECOND, run
from tallystream import record
from tallystream.metrics.sketch import Sketch
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.otlp import decode
from tallystream_aggregator.otlp.identity import KnownResources
from tallystream_aggregator.otlp.scopes import KnownScopes
from tallystream_aggregator.shipping import tail
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.sinks.base import sift
from tallystream_aggregator.stream import compaction, positions
from tallystream_aggregator.table import Record, Table, TableSettings, storage
from tallystream_aggregator.table.combiners import CombinerGroup
from tallystream_aggregator.table.combiners import decode as decode_sums
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.storage import StoredTable
from tallystream_aggregator.verify import published
from tallystream_aggregator.verify.sketches import number_of

STEP_MS = 1_000


def pairs(data: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return the records of an input: one a line, a key, a tab and a value, which is null without a tab."""
    found = (line.partition(b"\t") for line in data.split(b"\n"))
    return [(key, value if tab else None) for key, tab, value in found]


def records(data: bytes) -> None:
    """Read the records of a partition: the sums are verify's.

    Of every second input the table begins again after each step.
    """
    if len(data) % 2:
        _apply(pairs(data), RULES)
    else:
        _apply(pairs(data), UNLIMITED, begin_again=True)


def short_forms(data: bytes) -> None:
    """Read the records of a partition, and leave out those that later ones supersede."""
    with mock.patch.object(compaction, "FEW_RECORDS", 0):
        _apply(pairs(data), RULES)


def sketches(data: bytes) -> None:
    """Read a sketch in a timer of two lives, one of which is removed, beside one with another sketch."""
    count = _count_of(data)
    other = b'{"scale":5,"zero_count":1,"positive":[{"offset":3,"counts":"Ag=="}]}'

    def snapshot(life: str, seq: int, count: int, sketch: bytes) -> bytes:
        header = {"app": "a", "life": life, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000, "final": False}
        metric = b'{"name":"t","type":"timer","count":%d,"sum":0.5,"sketch":%b}' % (count, sketch)
        return json.dumps(header).encode()[:-1] + b',"metrics":[%b]}' % metric

    topic: list[tuple[bytes, bytes | None]] = [
        *((b"i", snapshot(FIRST, 1, count, data)), (b"j", snapshot(SECOND, 1, 3, other))),
        *((b"i", snapshot(FIRST, 2, count + 3, other)), (b"k", snapshot(FIRST, 1, count, data)), (b"k", None)),
    ]
    _apply(topic, UNLIMITED, begin_again=True)


def _count_of(data: bytes) -> int:
    """Return how many values a sketch has for verify, or else for the reporter, and 1 if both refuse it."""
    with suppress(ValueError, RecursionError):  # also those of msgspec
        found = msgspec.json.decode(data, type=record.Sketch)
        with suppress(ValueError):
            return number_of(found)
        return Sketch.decode(found).count
    return 1


def _apply(topic: list[tuple[bytes, bytes | None]], rules: dict[str, Any], *, begin_again: bool = False) -> None:
    """Apply the records in three steps, and compare everything with verify's replay."""
    read = [TopicRecord(key, value, BEGIN_MS + STEP_MS * at, 0, at) for at, (key, value) in enumerate(topic)]
    tables = new_tables(read, rules)
    for third in range(1, 4):
        tables.step({0: len(read) * third // 3})
        if begin_again:
            tables.begin_again(from_rows=third % 2 == 0)
    require_equal(tables, replay(read, **rules))


def otlp_records(data: bytes) -> None:
    """Read one OTLP record twice, a second apart: what it has is the same in JSON, in protobuf, and for verify.

    Of every second input a few metrics are more than there is room for.
    """
    limits: dict[str, Any] = {"max_metrics": 3, "max_table_bytes": 20_000} if len(data) % 2 else {}
    values = [data]
    if data.startswith(b"{"):
        with suppress(json_format.ParseError, UnicodeError, RecursionError):
            message = json_format.Parse(data, pb.MetricsData(), ignore_unknown_fields=True)
            values.append(message.SerializeToString())
    for value in values:
        with mock.patch.multiple(decode, _scopes=KnownScopes(), _resources=KnownResources()):
            apply_otlp((b"k", value), (b"k", value), **limits)


def rows(data: bytes) -> None:
    """Make a table of rows, and let it go on: it publishes everything, is stored, and forgets its lives."""
    latest = LatestRows()
    for key, value in pairs(data):
        latest.add(key, value)
    for state in restore(latest).states:
        _go_on(Table(state, TableSettings()))


def states(data: bytes) -> None:
    """Read a log, MessagePack with a list of its head and its entries, and let the table go on."""
    try:
        head, *entries = msgspec.msgpack.decode(data, type=list[bytes])
    except (msgspec.DecodeError, ValueError):
        head, entries = data, []
    stored = storage.load(Batch(0, head, dict(enumerate(entries, 1))), TableSettings())
    assert stored is not None
    _go_on(stored.table)


def _go_on(table: Table) -> None:
    """Publish and store all that a table has; then a record and a clock record come, and the same again."""
    positions.positions_of(table.state)
    at = max([*table.state.offsets.values(), 0]) + 1
    value = b'{"app":"a","life":"%b","part":0,"seq":9,"ts":0,"every_ms":1000,"final":false,"metrics":[]}'
    late_ms = BEGIN_MS + 90 * 86_400_000
    clock = Record("metrics", 0, at + 1, late_ms, b"tallystream-clock", b'{"v":1,"wall_ms":%d}' % late_ms)
    for more in ([], [Record("metrics", 0, at, BEGIN_MS, b"i", value % FIRST.encode())], [clock]):
        table.publish_all()
        changes = run(table, more)
        made: list[Any] = [*changes.totals, *changes.instances, *changes.dead, *changes.events, *changes.rows]
        for one in made:
            one.value()
        StoredTable(table).save(Batch(0))


def positions_rows(data: bytes) -> None:
    """Read a positions row, as a loop does at its start, and as verify does."""
    with suppress(ValueError):  # what verify documents
        published.moment(data)
    row = positions.newest_in([(0, 0, positions.key_of(0), data)], positions.key_of(0))
    assert row is not None
    positions.summed(row)
    positions.by_place(row.begin)
    positions.encode(row)


def ledger_rows(data: bytes) -> None:
    """Read the rows of a ledger, one a line."""
    for row in ledger.rows(data.split(b"\n")):
        ledger.encode(row)


def shard_sums(data: bytes) -> None:
    """Read the partial sums of a shard for a metric, and add them to those of another shard."""
    found = decode_sums(data)
    combiner = CombinerGroup()
    combiner.update([found, msgspec.structs.replace(found, shard=found.shard + 1)])
    for total in combiner.changes():
        total.value()
    combiner.remove(found.metric, found.shard)


def shipped(data: bytes) -> None:
    """Read records of the published topics as the shipper and verify do. The key begins with the name of the topic."""
    topics = Topics("")
    mapper = PointMapper(topics)
    sums = published.PublishedSums({})
    read = []
    for offset, (key, value) in enumerate(pairs(data)):
        name, _, key_ = key.partition(b" ")
        topic = {b"agg": topics.agg, b"events": topics.events}.get(name, topics.table)
        read.append(tail.Record(topic, offset, key_, value))
        sums.add(key_, value)
        published.event(value)
        published.refused_record(value)
    assert len(mapper.points(read)) >= len(mapper.newest(read))
    for one in sift("a store", mapper.points(read))[0]:
        msgspec.json.encode(one)
