"""Sums of OTLP topics by properties: what applications counted, tables that begin again, hostile records."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.fuzz import examples
from support.otlp import (
    BEGIN_NS,
    SECOND_NS,
    TOPIC,
    Appended,
    Fleet,
    attributes,
    counter,
    encode,
    gauge,
    number,
    resource_metrics,
)
from support.replayed import TopicRecord
from support.steps import Published, run
from support.tables import Tables, divide
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.state import pack, unpack
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import parse, unequal
from tallystream_aggregator.verify.replay import Replay

SETTINGS = TableSettings(otlp_topics=(TOPIC,))


def record_of(one: Appended) -> Record:
    return Record(TOPIC, one.partition, one.offset, one.timestamp_ms, one.key, one.value)


def in_steps(records: list[Appended], size: int) -> list[Published]:
    """Run the records in steps of this size, in one shard."""
    table = Table(State(), SETTINGS)
    return [run(table, map(record_of, records[first : first + size])) for first in range(0, len(records), size)]


def counts(changes: list[Published]) -> dict[tuple[str, str], Any]:
    """Return the newest counts by name and topic."""
    return {
        (total.metric[1], dict(total.metric[3])["topic"]): total.count
        for step in changes
        for total in step.totals
        if total.metric[2] == "counter"
    }


@examples(30)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1, 3, 10, 1000]))
def test_sums_are_what_the_applications_counted(seed: int, size: int) -> None:
    """Duplicated, divided, delayed and shuffled OTLP batches change nothing; verify's own reader says the same."""
    fleet = Fleet(seed)
    for _ in range(60):
        fleet.step()
    fleet.end()
    changes = in_steps(fleet.records, size)
    assert counts(changes) == fleet.counted
    assert [letter.reason for step in changes for letter in step.dead] == []
    replay = Replay(Settings(otlp_topics=(TOPIC,)))
    for one in sorted(fleet.records, key=lambda one: (one.partition, one.offset)):
        assert replay.apply(f"{TOPIC}:{one.partition}", one.timestamp_ms, one.key, one.value) == []
    found = {
        (name, dict(tags)["topic"]): fields["count"]
        for (_, kind, name, tags), fields in replay.sums().items()
        if kind == "counter"
    }
    assert found == fleet.counted


@examples(10)
@given(seed=st.integers(0, 2**32), shards=st.sampled_from([1, 3]))
def test_tables_that_begin_again_change_no_sum(seed: int, shards: int) -> None:
    """Streams fall silent and go on; their lives stay incomplete."""
    chance, fleet = random.Random(seed), Fleet(seed)
    for step in range(80):
        fleet.now_ns += 3600 * SECOND_NS * (step % 10 == 9)
        fleet.step()
    fleet.end()
    records = [TopicRecord(one.key, one.value, one.timestamp_ms, one.partition, one.offset) for one in fleet.records]
    tables = Tables(records, TableSettings(otlp_topics=("metrics",)), shards, chance)
    for ends in divide(records, [chance.randint(1, 9) for _ in range(5)]):
        if chance.random() < 0.2:
            tables.begin_again(from_rows=chance.random() < 0.5)
        tables.step(ends)
    lives = [life for state in tables.states for known in state.lives.values() for life in known.values()]
    assert {life.complete for life in lives} == {False}
    for sums in (tables.sums, tables.all_sums()):
        found = {
            (name, dict(tags)["topic"]): fields["count"]
            for (_, name, kind, tags), fields in sums.items()
            if kind == "counter"
        }
        assert found == fleet.counted
    assert not tables.dead


APPEND_MS = BEGIN_NS // 1_000_000 + 3000
DAY_NS = 86_400 * SECOND_NS
TEXTS = ["", "\0", "n", "le", "é", "\U0001f600", "\ufeff", "x" * 128, "x" * 129, "x" * 512, "x" * 513, "x" * 1025]
NUMBERS = [0, 1, 2, 5, 2**31 - 1, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**31), -(2**63)]
NUMBERS += [BEGIN_NS, BEGIN_NS + 1, BEGIN_NS + 3 * SECOND_NS, BEGIN_NS - DAY_NS, BEGIN_NS + 2 * DAY_NS]
FLOATS = [0.0, -0.0, 1.0, 0.5, 5e-324, 1e308, -1e308, 2.0**63, float("nan"), float("inf"), float("-inf")]
JSON_VALUES = [None, True, -1, 1.5, 2**70, 1e400, "", "\ud800", "NaN", "x", "AA==", "A", [], {}, [None], {"x": 1}]


def valid(chance: random.Random) -> pb.MetricsData:
    """Return a record with all kinds of points."""
    times: dict[str, Any] = {
        "start_time_unix_nano": BEGIN_NS,
        "time_unix_nano": BEGIN_NS + chance.randrange(3) * SECOND_NS,
    }
    cumulative: dict[str, Any] = {"aggregation_temporality": pb.AGGREGATION_TEMPORALITY_CUMULATIVE}
    explicit = pb.HistogramDataPoint(count=3, sum=4.5, bucket_counts=[1, 2, 0], explicit_bounds=[1.0, 2.0], **times)
    side = pb.ExponentialHistogramDataPoint.Buckets(offset=3, bucket_counts=[1, 0, 2])
    exponential = pb.ExponentialHistogramDataPoint(count=5, zero_count=2, scale=6, sum=1.0, positive=side, **times)
    summary = pb.SummaryDataPoint(count=3, sum=4.5, **times)
    nested = [[["a", 1.5], b"\xff"], True]
    metrics = [
        counter("n", number(chance.randrange(9), attributes=attributes(a="x", b=7, c=nested)), number(3)),
        counter("u", number(-3), monotonic=False),
        gauge("g", number(chance.choice([1, 2.5]), 0)),
        pb.Metric(name="h", histogram=pb.Histogram(data_points=[explicit], **cumulative)),
        pb.Metric(name="e", exponential_histogram=pb.ExponentialHistogram(data_points=[exponential], **cumulative)),
        pb.Metric(name="s", summary=pb.Summary(data_points=[summary])),
    ]
    chance.shuffle(metrics)
    kept = metrics[: chance.randint(1, len(metrics))]
    resource = {"service__name": "shop", "service__instance__id": chance.choice("ab"), "process__pid": 7}
    return pb.MetricsData(resource_metrics=[resource_metrics(kept, scope=chance.choice("st"), **resource)])


def mutate(message: Any, chance: random.Random) -> None:
    """Change a field somewhere in a message: to a hostile value, to nothing, or to a copy of itself."""
    found = message.ListFields()
    if not found or (chance.random() < 0.1 and len(message.DESCRIPTOR.fields) < 8):
        field = chance.choice(message.DESCRIPTOR.fields)
    else:
        field = chance.choice(found)[0]
    value = getattr(message, field.name)
    if field.is_repeated:
        if field.message_type and value and chance.random() < 0.8:
            mutate(chance.choice(value), chance)
        elif field.message_type and value and chance.random() < 0.7:
            value.extend([chance.choice(value)] * chance.choice([1, 2, 40]))
        elif value and chance.random() < 0.5:
            del value[chance.randrange(len(value))]
        elif not field.message_type:
            put(value.append, field, chance)
    elif field.message_type:
        if chance.random() < 0.1:
            message.ClearField(field.name)
        else:
            value.SetInParent()
            mutate(value, chance)
    else:
        put(lambda hostile: setattr(message, field.name, hostile), field, chance)


def put(setter: Any, field: Any, chance: random.Random) -> None:
    """Set a field to a hostile value of its type, if the type can have it."""
    choices: dict[int, list[Any]] = {
        field.CPPTYPE_STRING: [text.encode() for text in TEXTS] if field.type == field.TYPE_BYTES else TEXTS,
        field.CPPTYPE_DOUBLE: FLOATS,
        field.CPPTYPE_BOOL: [True, False],
    }
    with contextlib.suppress(ValueError):  # the number is out of the range of the type
        setter(chance.choice(choices.get(field.cpp_type, NUMBERS)))


def mutate_json(document: Any, chance: random.Random) -> Any:
    """Return a JSON document in which a value somewhere is another one, mostly of a wrong type."""
    if chance.random() < 0.1 or not isinstance(document, (dict, list)) or not document:
        return copy.deepcopy(chance.choice(JSON_VALUES))
    key = chance.choice(list(document)) if isinstance(document, dict) else chance.randrange(len(document))
    document[key] = mutate_json(document[key], chance)
    return document


def mutated(chance: random.Random) -> bytes:
    """Return the value of a record: a valid one in which fields, values of the JSON or bytes were changed."""
    data = valid(chance)
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        mutate(data, chance)
    if chance.random() < 0.4:
        document = json_format.MessageToDict(data)
        for _ in range(chance.choice([0, 1, 1, 2])):
            document = mutate_json(document, chance)
        return json.dumps(document).encode()
    value = bytearray(data.SerializeToString())
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        at = chance.randrange(len(value) + 1)
        value[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 3))
    return bytes(value)


def check(values: list[bytes], **limits: int) -> None:
    """Apply records, and compare sums, refusals and events of the table and verify. All output is encoded."""
    table = Table(State(), TableSettings(otlp_topics=(TOPIC,), **limits))
    replay = Replay(Settings(otlp_topics=(TOPIC,), **limits))
    sums: dict[Any, dict[str, Any]] = {}
    events = []
    for offset, value in enumerate(values):
        changes = run(table, [Record(TOPIC, 0, offset, APPEND_MS, None, value)])
        refused = replay.apply(f"{TOPIC}:0", APPEND_MS, None, value)
        assert len(changes.dead) == len(refused), (value, changes.dead, refused)
        events += [(one.kind, one.app, one.instance, one.life, one.ts, one.detail) for one in changes.events]
        for letter in changes.dead:
            json.loads(letter.value())
        for row in changes.rows:
            assert row.value()
        published = [parse(total.key(), total.value()) for total in [*changes.totals, *changes.instances]]
        sums |= {one.identity: one.fields for one in published}
    assert unpack(pack(table.state)) == table.state
    assert sorted(events) == sorted(replay.noted.events), values
    replayed = replay.sums()
    assert sums.keys() == replayed.keys(), values
    for identity, fields in sums.items():
        assert not unequal(fields, replayed[identity]), (identity, values)


@examples(60)
@given(st.integers(0, 2**63))
def test_the_table_and_verify_read_the_same_of_any_record(seed: int) -> None:
    """Mutated records in protobuf and JSON: the same sums, numbers of dead letters and events, and no error."""
    chance = random.Random(seed)
    check(
        [mutated(chance) for _ in range(3)],
        max_metrics=chance.choice([1, 3, 10_000]),
        max_table_bytes=chance.choice([5_000, 2**31]),
    )


def nested_json(depth: int) -> bytes:
    """Return a record whose point has an attribute with lists in lists."""
    value = '{"arrayValue":{"values":[' * depth + '{"intValue":1}' + "]}}" * depth
    metric = counter("n", number(1, attributes=attributes(a="here")))
    return encode(resource_metrics([metric], service__name="shop"), as_json=True).replace(
        b'{"stringValue": "here"}', value.encode()
    )


@pytest.mark.parametrize(
    "value",
    [
        b"\x0a\x00" * 2000,
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0b" * 5000,
        b"{" * 5000,
        b'{"resourceMetrics":' + b"[" * 5000,
        b'{"resourceMetrics":[%s]}' % b",".join([b"{}"] * 1000),
        nested_json(20),
        nested_json(2000),
        b'{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"\xff"}}]}}]}',
        encode(resource_metrics([counter("\ud7ff", number(1))], as_json="\uffff")),
        encode(resource_metrics([counter("n", number(1))]), resource_metrics([counter("n", number(2))])),
        encode(resource_metrics([counter("n", number(1))], **{"": "x" * 1025})),
        encode(resource_metrics([counter("n", number(1))]), as_json=True).replace(b"resource", b"r\\u0065source"),
        encode(resource_metrics([gauge("g", number(1, BEGIN_NS, BEGIN_NS), number(2, 0, BEGIN_NS))])),
    ],
    ids=range(14),
)
def test_records_of_extremes(value: bytes) -> None:
    """Empty resources, also of JSON, lengths beyond the record, deep nesting, bytes that are no UTF-8, a stream twice.

    An attribute of the resource without a name, a name with an escape, a gauge with and without a start time.
    """
    check([value])


def _tagged(number_of_tags: int, **more: Any) -> dict[str, Any]:
    return {f"tag-{tag}": "x" for tag in range(number_of_tags - len(more))} | more


def _buckets_of(tags: dict[str, Any]) -> pb.Metric:
    point = pb.HistogramDataPoint(
        start_time_unix_nano=BEGIN_NS,
        time_unix_nano=BEGIN_NS + SECOND_NS,
        count=2,
        bucket_counts=[1, 1],
        explicit_bounds=[5],
        attributes=attributes(**tags),
    )
    data = pb.Histogram(data_points=[point], aggregation_temporality=pb.AGGREGATION_TEMPORALITY_CUMULATIVE)
    return pb.Metric(name="h", histogram=data)


def _histogram(count: int) -> pb.Metric:
    point = pb.HistogramDataPoint(
        start_time_unix_nano=BEGIN_NS, time_unix_nano=BEGIN_NS + SECOND_NS, count=count, sum=1.0
    )
    data = pb.Histogram(data_points=[point], aggregation_temporality=pb.AGGREGATION_TEMPORALITY_CUMULATIVE)
    return pb.Metric(name="h", histogram=data)


DAY_NS = 86_400 * SECOND_NS
EDGES = {
    "start 1": (counter("n", number(5, start_ns=1)), 0),
    "no start": (counter("n", number(5, start_ns=0)), 1),
    "a point twice": (counter("n", number(5), number(5)), 1),
    "start in centuries": (counter("n", number(5, start_ns=2**63 - 1)), 1),
    "start beyond 63 bits": (counter("n", number(5, start_ns=2**63)), 1),
    "no time": (counter("n", number(5, time_ns=0)), 1),
    "gauge without a start": (gauge("g", number(5, start_ns=0)), 0),
    "a day ahead": (counter("n", number(5, time_ns=BEGIN_NS + DAY_NS)), 0),
    "more than a day ahead": (counter("n", number(5, time_ns=BEGIN_NS + DAY_NS + 1_000_000)), 1),
    "two points late": (counter("n", *[number(5, BEGIN_NS - DAY_NS, BEGIN_NS - DAY_NS)] * 2), 2),
    "two starts ahead": (counter("n", *[number(5, start_ns=BEGIN_NS + DAY_NS + 1_000_000)] * 2), 2),
    "32 tags": (counter("n", number(5, attributes=attributes(**_tagged(32)))), 0),
    "33 tags": (counter("n", number(5, attributes=attributes(**_tagged(33)))), 1),
    "buckets with 31 tags": (_buckets_of(_tagged(30)), 0),
    "buckets with 32 tags": (_buckets_of(_tagged(32)), 1),
    "buckets with a tag bounds": (_buckets_of({"bounds": "x"}), 1),
    "largest count": (counter("n", number(2**63 - 1)), 0),
    "count below 0": (counter("n", number(-1)), 1),
    "largest count of a histogram": (_histogram(2**63 - 1), 0),
    "count of a histogram beyond 63 bits": (_histogram(2**63), 1),
    "largest gauge": (gauge("g", number(2**63 - 1)), 0),
    "name of 512": (counter("n" * 512, number(5)), 0),
    "name of 513": (counter("n" * 513, number(5)), 1),
}


@pytest.mark.parametrize(("metric", "refused"), EDGES.values(), ids=EDGES)
def test_verify_refuses_what_the_table_refuses(metric: pb.Metric, refused: int) -> None:
    """Each bound of a point is in the table and in verify, to the same number. Other metrics of the record count."""
    resource = resource_metrics([metric, counter("other", number(7))], service__name="shop", service__instance__id="1")
    value = encode(resource)
    changes = run(Table(State(), SETTINGS), [Record(TOPIC, 0, 0, BEGIN_NS // 1_000_000, b"x", value)])
    replay = Replay(Settings(otlp_topics=(TOPIC,)))
    letters = replay.apply(f"{TOPIC}:0", BEGIN_NS // 1_000_000, b"x", value)
    assert (len(changes.dead), len(letters)) == (refused, refused)
    wanted = {(total.metric[1], total.metric[2]): total.count for total in changes.totals}
    found = {
        (name, kind): fields.get("count") for (_, kind, name, _), fields in replay.sums().items() if kind != "instances"
    }
    assert found == wanted
    assert wanted[("other", "counter")] == 7


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (encode(resource_metrics([counter("n", *[number(-1)] * 10)], service__name="a")), 10),
        (encode(resource_metrics([counter("n", *[number(-1)] * 11)], service__name="a")), 11),
        (encode(resource_metrics([counter("n", *[number(-1)] * 12)], service__name="a")), 11),
    ],
    ids=["10 letters", "11 letters", "12 letters"],
)
def test_verify_has_the_limits_of_a_record_that_the_table_has(value: bytes, refused: int) -> None:
    """A record makes ten dead letters about single points, and one with the number of the others."""
    record = Record(TOPIC, 0, 0, BEGIN_NS // 1_000_000, b"x", value)
    letters = Replay(Settings(otlp_topics=(TOPIC,))).apply(f"{TOPIC}:0", BEGIN_NS // 1_000_000, b"x", value)
    assert (len(run(Table(State(), SETTINGS), [record]).dead), len(letters)) == (refused, refused)


@pytest.mark.parametrize(("resources", "refused"), [(114, 0), (115, 1)])
def test_a_record_may_have_so_many_resources_whatever_was_read_before(resources: int, refused: int) -> None:
    """That the process knows the resource from another record does not change the limit, which verify has too."""
    known = encode(pb.ResourceMetrics(scope_metrics=[pb.ScopeMetrics(metrics=[counter("n", number(1))])]))
    records = [Record(TOPIC, 0, at, BEGIN_NS // 1_000_000, b"x", known) for at in (0, 1)]
    value = encode(*[pb.ResourceMetrics()] * resources)
    table = Table(State(), SETTINGS)
    run(table, records)
    after = run(table, [Record(TOPIC, 0, 2, BEGIN_NS // 1_000_000, b"x", value)])
    letters = Replay(Settings(otlp_topics=(TOPIC,))).apply(f"{TOPIC}:0", BEGIN_NS // 1_000_000, b"x", value)
    assert (len(after.dead), len(letters)) == (refused, refused)
