"""Scopes that are known are not parsed again, and give the same points and the same table."""

from __future__ import annotations

import collections
import gc
import math
import random
import tracemalloc
from collections.abc import Iterator
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.fuzz import examples
from support.otlp import BEGIN_NS, SECOND_NS, TOPIC, attributes, counter, encode, gauge, number, resource_metrics
from support.steps import run
from tallystream.record import Counter, Gauge
from tallystream_aggregator.otlp import decode, identity, scopes
from tallystream_aggregator.otlp.identity import KnownResources
from tallystream_aggregator.otlp.scopes import KnownScopes, ScopePoints
from tallystream_aggregator.otlp.wire import BYTES, fields_of
from tallystream_aggregator.table import Record, State, Table, TableSettings, apply
from tallystream_aggregator.table.state import pack

times = st.sampled_from([0, 1, BEGIN_NS, BEGIN_NS + 1, 2**63 - 1, 2**63, 2**64 - 1])
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats() | st.sampled_from([0.5, -0.0, math.nan, math.inf])
points = st.builds(
    lambda value, start, time, name, flags: number(
        value, start, time, attributes=attributes(**{name: "é" * len(name)}), flags=flags
    ),
    integers | floats,
    times,
    times,
    st.sampled_from(["a", "b", "\x3f\xf0", "bb"]),
    st.sampled_from([0, 0, 0, 0, 1]),
)
metrics = st.builds(
    lambda kind, name, found: kind(name, *found),
    st.sampled_from([counter, gauge, lambda *made: counter(*made, monotonic=False)]),
    st.sampled_from(["n", "m", "\0"]),
    st.lists(points, max_size=3),
) | st.just(pb.Metric(name="s", summary=pb.Summary(data_points=[pb.SummaryDataPoint(count=1)])))


def scope(*found: pb.Metric) -> pb.ScopeMetrics:
    """Return these metrics as a scope."""
    return resource_metrics(list(found)).scope_metrics[0]


def text_of(found: ScopePoints) -> tuple[list[str], list[str]]:
    """Return points as text, in which NaN equals NaN and -0.0 differs from 0.0."""
    groups = [repr((group.life, group.start_ns, group.time_ns, [*group.metrics])) for group in found.groups]
    return groups, [repr(point) for point in found.rejected]


def expected(found: pb.ScopeMetrics) -> tuple[list[str], list[str]]:
    """Return the points as they are without a memory."""
    return text_of(KnownScopes().read(found, b""))


def check(known: KnownScopes, one: pb.ScopeMetrics) -> None:
    """Check that a scope is read as without a memory, if it is parsed or, when it is known, from its bytes."""
    raw = one.SerializeToString()
    assert text_of(known.read(one, raw)) == expected(one)
    found = known.find(raw)
    if found is not None:
        assert text_of(found.read(raw)) == expected(one)


@given(st.lists(st.tuples(st.lists(metrics, max_size=3), st.lists(st.tuples(integers | floats, times, times)))))
def test_the_same_points_as_without_a_memory(steps: list[tuple[list[pb.Metric], list[tuple[Any, int, int]]]]) -> None:
    """After any other scopes, and after the same scope with other values of any type, the points are the same."""
    known = KnownScopes()
    for found, changes in steps:
        one = scope(*found)
        check(known, one)
        for value, start_ns, time_ns in changes:
            for point in (point for metric in one.metrics for point in metric.sum.data_points):
                point.start_time_unix_nano, point.time_unix_nano = start_ns, time_ns
                point.MergeFrom(number(value, start_ns, time_ns))
            check(known, one)


DATA: dict[int, Any] = {1: {}}  # the points
FIELDS: dict[int, Any] = {1: {2: {2: {5: DATA, 7: DATA}}}}
"""The fields of a record whose content is a message again, down to the points."""


def reversed_fields(message: bytes, inner: dict[int, Any]) -> bytes:
    """Return a message with its fields in the reverse order. Those of one number stay in their order."""
    parts = []
    for field, kind, begin, end in fields_of(message, 0, len(message)):
        content = message[begin:end]
        if field in inner:
            content = reversed_fields(content, inner[field])
        parts.append((field, bytes([field << 3 | kind]) + (_size(len(content)) if kind == BYTES else b"") + content))
    return b"".join(part for _, part in sorted(parts, key=lambda one: -one[0]))


def _size(size: int) -> bytes:
    return bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80]) + _size(size >> 7)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_known_record_is_not_parsed(is_reversed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third export of a process costs a fraction: neither the record nor its metrics are read one by one again.

    Also if it has the last field of each message first, as the Collector writes them.
    """

    def export(value: int) -> bytes:
        times = BEGIN_NS, BEGIN_NS + value
        found = [counter("n", number(value, *times, attributes=attributes(a=1))), counter("e")]
        one = resource_metrics([*found, gauge("g", number(value / 2, 0, times[1]))], service__name="shop")
        one.schema_url = "https://example.org/1"
        record = encode(one, resource_metrics([counter("m", number(value, *times))]))
        return reversed_fields(record, FIELDS) if is_reversed else record

    def snapshots(value: int) -> list[Any]:
        read = decode.read(export(value))
        found = [(one.resource.app, decode.snapshots(one, "shop", BEGIN_NS // 1_000_000, 10)) for one in read]
        return [(app, one.rejected, [[*metrics] for _, metrics, _ in one.snapshots]) for app, one in found]

    def wanted(value: int) -> list[Any]:
        counted = Counter(name="n", tags={"a": "1"}, count=value)
        return [
            ("shop", [], [[Gauge(name="g", value=value / 2)], [counted]]),
            ("unknown_service", [], [[Counter(name="m", count=value)]]),
        ]

    assert (export(5) != encode(*pb.MetricsData.FromString(export(5)).resource_metrics)) == is_reversed
    snapshots(3)
    second = snapshots(5)
    monkeypatch.setattr(scopes, "read_metric", None)
    monkeypatch.setattr(decode, "_parsed", None)
    assert second == wanted(5)
    assert snapshots(7) == wanted(7)


@pytest.mark.parametrize("what", ["scope", "schema", "tag", "resource", "name"])
def test_what_is_kept_is_limited_in_bytes(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that never come back do not fill the memory, whether the points are taken or refused."""
    monkeypatch.setattr(scopes, "MAX_BYTES", 100_000)
    monkeypatch.setattr(identity, "MAX_BYTES", 100_000)
    monkeypatch.setattr(decode, "_scopes", KnownScopes())
    monkeypatch.setattr(decode, "_resources", KnownResources())
    gc.collect()
    tracemalloc.start()
    try:
        for size in (300, 5_000, 20_000):
            for n in range(40):
                text = f"{n}-".ljust(size, "x")
                one = resource_metrics(
                    [gauge("g", number(n, 0, attributes=attributes(k=text if what == "tag" else "")))]
                )
                if what == "scope":
                    one.scope_metrics[0].scope.name = text
                elif what == "schema":
                    one.scope_metrics[0].schema_url = text
                elif what == "name":
                    one.scope_metrics[0].metrics[0].name = text
                elif what == "resource":
                    one.resource.attributes.extend(attributes(k=text))
                for resource in decode.read(encode(one)):
                    decode.snapshots(resource, "shop", BEGIN_NS // 1_000_000, 10)
                del one, resource
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 400_000
    finally:
        tracemalloc.stop()


def test_a_scope_with_exemplars_is_not_kept() -> None:
    """They differ in each export, so it would never be found."""
    point = number(5)
    point.exemplars.add(time_unix_nano=BEGIN_NS, as_int=5)
    one, known = scope(counter("n", point)), KnownScopes()
    check(known, one)
    check(known, one)
    assert known.find(one.SerializeToString()) is None
    assert known._bytes == 0


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | BYTES]) + _size(len(content)) + content


def _counter(*points: bytes) -> bytes:
    return _field(1, b"n") + _field(7, b"".join(points) + counter("n").sum.SerializeToString())


UNREAD = b"\x82\x01\x00"
"""An empty field with the number 16."""
FIRST, WITHOUT, LAST = (number(value, flags=flag).SerializeToString() for value, flag in ((5, 0), (5, 1), (7, 0)))
REPLACED = {
    "value": _field(2, _counter(_field(1, FIRST + UNREAD + LAST))),
    "point": _field(2, _counter(_field(1, WITHOUT), UNREAD, _field(1, LAST))),
    "data": _field(2, _counter(_field(1, FIRST)) + UNREAD + gauge("n", number(7, 0)).SerializeToString()),
    "metric": _field(2, _counter(_field(1, WITHOUT))) + UNREAD + _field(2, _counter(_field(1, LAST))),
}


@pytest.mark.parametrize("raw", REPLACED.values(), ids=REPLACED)
def test_a_scope_with_fields_that_are_not_read_here_is_not_kept(raw: bytes) -> None:
    """What follows them counts instead of what is before them, which is replaced or has no value."""
    one, known = pb.ScopeMetrics.FromString(raw), KnownScopes()
    for _ in range(3):
        assert text_of(known.read(one, raw)) == expected(one)


@pytest.mark.parametrize("what", ["scope", "name", "tag"])
def test_a_scope_is_kept_when_it_comes_again(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that a publisher makes up leave nothing, and do not cost what finding them again would take."""
    monkeypatch.setattr(scopes, "MAX_SEEN", 5)
    known = KnownScopes()

    def made(n: int) -> pb.ScopeMetrics:
        text = f"text-{n}"
        tags = attributes(k=text if what == "tag" else "")
        one = scope(counter(text if what == "name" else "n", number(n, attributes=tags)))
        one.scope.name = text if what == "scope" else ""
        return one

    for n in range(9):
        check(known, made(n))
        assert known.find(made(n).SerializeToString()) is None
    assert known._bytes == 0
    check(known, made(8))
    assert known.find(made(8).SerializeToString()) is not None


STREAMS = ["a", "b", "c", "d", "e", "f"]


class Forgetful(KnownScopes):
    """Knows no scope, so that each one is parsed."""

    def find(self, raw: bytes) -> None:
        """Find nothing."""


def exports(chance: random.Random) -> Iterator[pb.ResourceMetrics]:
    """Yield exports of two processes. Most have the streams of the last one, of which some have a common start time."""
    now_ns = BEGIN_NS
    starts: dict[tuple[str, str], int] = {}
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for _ in range(50):
        now_ns += SECOND_NS
        app, odd = chance.choice(["x", "y"]), chance.random() < 0.2
        if (app, "a") not in starts or chance.random() < 0.1:  # it restarts, and some points are baselines
            begins = [now_ns - chance.choice([0, 1, 80_000]) for _ in range(3)]
            starts |= {(app, name): begins[place // 2] for place, name in enumerate(STREAMS)}
            counts.update({(app, name): -counts[app, name] for name in STREAMS})
        metrics = []
        for name in STREAMS:
            counts[app, name] += chance.choice([0, 1, 5])
            if odd and chance.random() < 0.2:
                continue
            value = counts[app, name] - 2 * (odd and chance.random() < 0.3)  # it falls, or is below 0
            metrics.append(counter(name, number(value, starts[app, name], now_ns + (odd and chance.random() < 0.3))))
        if app == "x":
            value = chance.choice([-2, 0.1, 1e300, math.nan if odd else 0.5])
            metrics.append(gauge("load", number(value, 0, now_ns)))
            metrics.append(counter("s", number(now_ns / 1e9, starts[app, "a"], now_ns)))
        found = resource_metrics(metrics, service__name="shop", service__instance__id=app)
        if odd and chance.random() < 0.3:
            found.scope_metrics.append(found.scope_metrics[0])
        yield found


@examples(40)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1, 5, 100]))
def test_known_scopes_give_the_table_of_parsed_ones(seed: int, size: int) -> None:
    """Sums, dead letters, events, rows and the state are the same, with falls, baselines, repeated and late records."""
    chance = random.Random(seed)
    found = [(at + chance.choice([0, 0, 0, 8]), encode(one)) for at, one in enumerate(exports(chance))]  # some are late
    found += [(at + 9, value) for at, value in chance.choices(found, k=10)]  # and some arrive twice
    values = [value for _, value in sorted(found)]
    offsets, at_ms = count(), BEGIN_NS // 1_000_000 + 60_000
    records = [Record(TOPIC, chance.randrange(2), next(offsets), at_ms, b"", value) for value in values]
    known, parsed = (Table(State(), TableSettings(otlp_topics=(TOPIC,))) for _ in range(2))
    scopes = KnownScopes()
    for first in range(0, len(records), size):
        step = records[first : first + size]
        with patch.object(decode, "_scopes", scopes):
            published = run(known, step)
        with patch.object(decode, "_scopes", Forgetful()):
            assert run(parsed, step) == published
        assert pack(parsed.state) == pack(known.state)


def test_the_counts_of_a_known_scope_replace_a_block() -> None:
    """No metric of it is read: a process that exports the same streams again costs a subtraction for each."""

    def export(value: int) -> Record:
        metrics = [counter(name, number(value, BEGIN_NS, BEGIN_NS + value)) for name in STREAMS]
        value_of_record = encode(resource_metrics(metrics, service__name="shop"))
        return Record(TOPIC, 0, value, BEGIN_NS // 1_000_000, b"", value_of_record)

    table = Table(State(), TableSettings(otlp_topics=(TOPIC,)))
    with patch.object(decode, "_scopes", KnownScopes()):
        run(table, [export(1), export(2)])
        with patch.object(apply, "replace_rows", None):
            published = run(table, [export(5)])
    assert {one.metric[1]: one.count for one in published.totals} == dict.fromkeys(STREAMS, 5)
