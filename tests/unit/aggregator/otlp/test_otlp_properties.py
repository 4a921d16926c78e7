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
    Fleet,
    apply,
    attributes,
    counter,
    encode,
    gauge,
    number,
    resource_metrics,
)
from support.replayed import TopicRecord, replay
from support.tables import Tables, divide
from tallystream_aggregator.table import TableSettings

TOPIC = "metrics"


@examples(30)
@given(
    seed=st.integers(0, 2**32),
    shards=st.sampled_from([1, 3]),
    size=st.sampled_from([1, 3, 10, 1000]),
    broken=st.sampled_from([0, 0.2]),
)
def test_sums_are_what_the_applications_counted(seed: int, shards: int, size: int, broken: float) -> None:
    """Duplicated, divided, delayed and shuffled batches change nothing, nor do tables that begin again.

    Streams fall silent and go on; their lives stay incomplete. Verify's own reader says the same.
    """
    chance, fleet = random.Random(seed), Fleet(seed)
    for step in range(80):
        fleet.now_ns += 3600 * SECOND_NS * (step % 10 == 9)
        fleet.step()
    fleet.end()
    records = [TopicRecord(one.key, one.value, one.timestamp_ms, one.partition, one.offset) for one in fleet.records]
    tables = Tables(records, TableSettings(otlp_topics=(TOPIC,)), shards, chance)
    for ends in divide(records, [size]):
        if chance.random() < broken:
            tables.begin_again(from_rows=chance.random() < 0.5)
        tables.step(ends)
    lives = [life for state in tables.states for known in state.lives.values() for life in known.values()]
    assert {life.complete for life in lives} == {False}
    replayed = replay(records, shards=shards, otlp_topics=(TOPIC,))
    assert not replayed.differing(tables.sums)
    assert tables.dead == replayed.dead == {}
    for sums in (tables.sums, tables.all_sums()):
        found = {
            (name, dict(tags)["topic"]): fields["count"]
            for (_, name, kind, tags), fields in sums.items()
            if kind == "counter"
        }
        assert found == fleet.counted


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


@examples(60)
@given(st.integers(0, 2**63))
def test_the_table_and_verify_read_the_same_of_any_record(seed: int) -> None:
    """Mutated records in protobuf and JSON: the same sums, numbers of dead letters and events, and no error."""
    chance = random.Random(seed)
    apply(
        *(mutated(chance) for _ in range(3)),
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
    apply(value)


@pytest.mark.parametrize(("resources", "refused"), [(114, 0), (115, 1)])
def test_a_record_may_have_so_many_resources_whatever_was_read_before(resources: int, refused: int) -> None:
    """That the process knows the resource from another record does not change the limit, which verify has too."""
    known = encode(pb.ResourceMetrics(scope_metrics=[pb.ScopeMetrics(metrics=[counter("n", number(1))])]))
    assert len(apply(known, known, encode(*[pb.ResourceMetrics()] * resources)).dead) == refused
