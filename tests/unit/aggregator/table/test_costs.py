"""The cost of a record depends on what it changes, and not on what the table has.

Work is counted as the lines of Python that run, so that it is the same in every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support import otlp
from support.steps import publish
from support.work import lines_run
from tallystream.ulid import ulid
from tallystream_aggregator.otlp import decode as otlp_decode
from tallystream_aggregator.stream import compaction
from tallystream_aggregator.stream.broker import Chunk, Place
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.table import Record, State, Table, TableSettings, apply
from tallystream_aggregator.table.arithmetic.exact_sum import total_units, units
from tallystream_aggregator.table.records import decode
from tallystream_aggregator.table.records.decode import clock_value

BEGIN_MS = 1_700_000_000_000
NEXT = 1_000_000
"""The number of the life that a record begins."""

FEW, MANY = 30, 300


def record(
    number: int, value: bytes | None, instance: str = "app-1", partition: int = 0, at_ms: int = BEGIN_MS
) -> Record:
    return Record("metrics", partition, number, at_ms, instance.encode(), value, at_ms)


def life_of(number: int) -> str:
    return ulid(BEGIN_MS - 10_000_000 + number, number)


def snapshot(
    number: int, *names: str, seq: int = 1, complete: bool = True, final: bool = False, kind: str = "counter"
) -> bytes:
    """Return a snapshot of a life, by its number."""
    value = {"value": seq} if kind == "gauge" else {"count": seq}
    header = {"app": "shop", "life": life_of(number), "part": 0, "seq": seq, "ts": 0, "every_ms": 60_000}
    begin_ms = BEGIN_MS - 10_000_000 + number
    if not complete:
        header |= {"seq": begin_ms * 1_000_000 + seq, "prev": BEGIN_MS}
    metrics = [{"name": name, "type": kind, **value} for name in names]
    return json.dumps(header | {"final": final, "complete": complete, "metrics": metrics}).encode()


def table_of(records: Iterable[Record]) -> Table:
    """Return a table that has published these records."""
    table = Table(State(), TableSettings())
    step(table, records)
    return table


def step(table: Table, records: Iterable[Record]) -> None:
    """Take a step with rows, from its records to what it stores."""
    for one in records:
        table.apply_record(one)
        table.advance(one.partition_name, one.offset, one.clock_ms)
    for row in publish(table).rows:
        row.value()
    table.pop_difference()


def work(table: Table, *records: Record) -> int:
    """Return the work of a step."""
    return lines_run(lambda: step(table, records))


def lives(
    number: int, *, complete: bool = True, final: bool = False, kind: str = "counter", tombstone: bool = False
) -> list[Record]:
    """Return the records of so many lives of one instance."""
    records = [record(n, snapshot(n, f"m{n % 7}", complete=complete, final=final, kind=kind)) for n in range(number)]
    return [*records, record(number, None)] if tombstone else records


def assert_same(few: int, many: int) -> None:
    """Assert that the work is the same, but for a heap that is one level deeper."""
    assert many <= 1.2 * few + 30


KINDS: dict[str, Callable[[int], list[Record]]] = {
    "living": lives,
    "final": partial(lives, final=True),
    "incomplete": partial(lives, complete=False),
    "incomplete and final": partial(lives, complete=False, final=True),
    "gauges": partial(lives, kind="gauge"),
    "empty": partial(lives, tombstone=True),
}
FORGET = b'{"v":1,"forget":%s}'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("complete", [True, False])
def test_a_new_life_costs_the_same_whatever_lives_its_instance_has(kind: str, *, complete: bool) -> None:
    """This holds for a new life and its next snapshots, with a metric that the others have and one of its own."""
    few, many = (table_of(KINDS[kind](number)) for number in (FEW, MANY))
    for seq, final in enumerate((False, False, True), start=1):
        new = record(NEXT + seq, snapshot(NEXT, "m1", "own", seq=seq, complete=complete, final=final))
        assert_same(work(few, new), work(many, new))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tombstone_costs_what_it_empties(kind: str) -> None:
    """A forget record of lives that are not there costs the same whatever lives the instance has.

    So does a tombstone after others, and after one more snapshot. The lives that one has emptied are visited by the
    next one, and then no more.
    """
    few, many = (table_of(KINDS[kind](number)) for number in (FEW, MANY))
    other = record(NEXT, FORGET % b'{"app":"other"}')
    assert_same(work(few, other), work(many, other))
    other = record(NEXT + 1, FORGET % b'{"life":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}')
    assert_same(work(few, other), work(many, other))
    for table in (few, many):
        step(table, [record(NEXT + 2, None)])
        step(table, [record(NEXT + 3, None)])
    assert_same(work(few, record(NEXT + 4, None)), work(many, record(NEXT + 4, None)))
    for table in (few, many):
        step(table, [record(NEXT + 5, snapshot(NEXT, "m1"))])
    assert_same(work(few, record(NEXT + 6, None)), work(many, record(NEXT + 6, None)))


def test_a_tombstone_of_empty_lives_publishes_and_stores_nothing() -> None:
    """Only the row of the shard is written."""
    table = table_of(lives(MANY, tombstone=True))
    table.apply_record(record(NEXT, None))
    table.advance("metrics:0", NEXT, BEGIN_MS)
    assert [row.key for row in publish(table).rows] == [b'["shard",0]']
    assert not table.pop_difference().lives


@pytest.mark.parametrize("name", [b"none", b"m1", b"own"])
def test_forgetting_a_metric_costs_what_it_removes(name: bytes) -> None:
    """The table may have many metrics, and many lives in this and in other partitions."""

    def table(number: int) -> Table:
        others = [record(n, snapshot(n, f"n{n}"), f"app-{n}") for n in range(number)]
        elsewhere = [record(n, snapshot(n, "m1"), f"other-{n}", partition=1) for n in range(number)]
        own = [record(number + n, snapshot(n, "own", "m2"), f"own-{n}") for n in range(3)]
        return table_of([*others, *elsewhere, *own])

    forget = record(NEXT, FORGET % b'{"metric":"%s"}' % name, "evil")
    few, many = table(FEW), table(MANY)
    for _ in range(2):
        assert_same(work(few, forget), work(many, forget))


@pytest.mark.parametrize(
    "what", [b'"app":"other"', b'"type":"gauge"', b'"tags":{"t":"none"}', b'"tags":{"t":"n7","u":"none"}']
)
def test_forgetting_a_metric_by_app_type_or_tags_costs_what_it_removes(what: bytes) -> None:
    """Many metrics may have the name, with other tags. They are visited when the first such record is read."""

    def table(number: int) -> Table:
        tagged = [snapshot(n, "m1").replace(b'"name"', b'"tags": {"t": "n%d"}, "name"' % n) for n in range(number)]
        return table_of(record(n, value, f"app-{n}") for n, value in enumerate(tagged))

    forget = record(NEXT, FORGET % (b'{"metric":"m1",%s}' % what), "evil")
    few, many = table(FEW), table(MANY)
    for one in (few, many):
        step(one, [forget])
    assert_same(work(few, forget), work(many, forget))


def test_an_instance_costs_the_same_whatever_counters_it_has() -> None:
    """A further one in a step costs as much with many counters as with few: to report, end, return and fall silent."""

    def costs(counters: int, instances: int) -> list[int]:
        names = [f"n{n}" for n in range(counters)]
        table, spent = table_of([record(0, snapshot(0, *names), "first")]), list[int]()
        for seq, final in enumerate((False, False, True, False), start=1):
            value = snapshot(1, *names, seq=seq, final=final)
            spent.append(work(table, *(record(n, value, f"app-{n}") for n in range(instances))))
        late_ms = BEGIN_MS + 1_000_000
        spent.append(work(table, record(1, b"{}", "other", at_ms=late_ms)))  # all fall silent
        return spent

    few, more, many, more_many = (costs(counters, number) for counters in (FEW, MANY) for number in (10, 20))
    for case in zip(few[1:], more[1:], many[1:], more_many[1:], strict=True):  # a new life's metrics are looked up
        assert_same(case[1] - case[0], case[3] - case[2])


@pytest.mark.parametrize("known", [False, True])
def test_a_metric_costs_the_same_whatever_parts_its_life_has(*, known: bool) -> None:
    """A further one in a snapshot, which is new or known to the table, costs as much with many parts as with few."""

    def cost(parts: int, metrics: int) -> int:
        of_parts = [snapshot(1, f"a{n}", f"b{n}").replace(b'"part": 0', b'"part": %d' % n) for n in range(parts)]
        names = [f"new{n}" for n in range(metrics)]
        others = [snapshot(0, *names)] if known else []
        table = table_of(record(n, value) for n, value in enumerate([*others, *of_parts]))
        return work(table, record(NEXT, snapshot(1, *names).replace(b'"part": 0', b'"part": 1000')))

    few, more, many, more_many = (cost(parts, metrics) for parts in (FEW, MANY) for metrics in (10, 20))
    assert_same(more - few, more_many - many)


def test_a_part_of_a_life_that_moves_costs_the_same_whatever_parts_it_has() -> None:
    """Each part of a life that is read from another partition is written again, with its own metrics."""

    def cost(parts: int) -> int:
        of_parts = [snapshot(1, f"a{n}").replace(b'"part": 0', b'"part": %d' % n) for n in range(parts)]
        table = table_of(record(n, value) for n, value in enumerate(of_parts))
        return work(table, record(NEXT, snapshot(1, "a0", seq=2), partition=1))

    assert_same(cost(FEW) * MANY // FEW, cost(MANY))


def test_an_extreme_that_falls_costs_what_its_metric_has() -> None:
    """It is found again among the lives that have the metric."""

    def table(number: int) -> Table:
        others = [record(n, snapshot(n, f"n{n}", kind="gauge"), f"app-{n}") for n in range(number)]
        return table_of([*others, record(number, snapshot(NEXT, "g", seq=9, kind="gauge"))])

    lower = record(NEXT, snapshot(NEXT, "g", seq=10, kind="gauge").replace(b'"value": 10', b'"value": 1'))
    assert_same(work(table(FEW), lower), work(table(MANY), lower))


def test_an_extreme_that_falls_is_found_once() -> None:
    """The next value costs the same whatever lives have the metric."""

    def cost(number: int) -> int:
        others = (record(n, snapshot(n, "g", seq=n, kind="gauge"), f"app-{n}") for n in range(1, number))
        table, first = table_of(others), snapshot(0, "g", kind="gauge").replace(b'"value": 1', b'"value": 1000')
        values = [first.replace(b'"seq": 1', b'"seq": %d' % seq).replace(b"1000", b"%d" % seq) for seq in (3, 4)]
        return [work(table, record(number + n, value)) for n, value in enumerate([first, *values])][-1]

    assert_same(cost(FEW), cost(MANY))


def test_floats_are_added_up_together() -> None:
    """In a few lines for any number of them, unless their sum is beyond the range of floats."""
    values = [0.1, 1e300, -1e-300, 7.0] * 250
    assert total_units(values) == sum(map(units, values))
    assert lines_run(lambda: total_units(values)) < 50
    assert total_units([1e308] * 9) == 9 * units(1e308)


@pytest.mark.parametrize("kind", ["living", "final", "incomplete"])
def test_lives_are_forgotten_one_by_one_at_the_same_cost(kind: str) -> None:
    """Whatever other lives their instance has. Then a new life costs the same."""
    week_ms = 8 * 24 * 3_600_000

    def table(number: int) -> Table:
        first = record(0, snapshot(NEXT - 1, "m1", complete=kind != "incomplete", final=True))
        later = [
            one._replace(offset=1 + one.offset, timestamp_ms=BEGIN_MS + 60_000, clock_ms=BEGIN_MS + 60_000)
            for one in KINDS[kind](number)
        ]
        return table_of([first, *later])

    now_ms = BEGIN_MS + week_ms - 24 * 3_600_000 + 1_000
    clock = record(NEXT, clock_value(now_ms), "tallystream-clock", at_ms=now_ms)
    few, many = table(FEW), table(MANY)
    for one in (few, many):
        step(one, [record(NEXT - 1, b"{}", "other", at_ms=now_ms - 2_000)])  # all lives are silent then
    assert_same(work(few, clock), work(many, clock))
    assert few.state.forgotten == many.state.forgotten == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("tallystream-clock", b"{}"), ("evil", FORGET % b'{"metric":"none"}'), ("evil", None)],
)
def test_a_record_costs_the_same_whatever_instances_its_step_has(key: str, value: bytes | None) -> None:
    """In a step whose records wait for others to replace them: clock and forget records, and tombstones."""

    def cost(number: int) -> int:
        rows = [(n, BEGIN_MS, b"app-%d" % n, b'{"name":"n","value":1}') for n in range(number)]
        step = StepRecords(Table(State(), TableSettings()))
        step.add(Chunk(Place("metrics", 0), [*rows, *rows], number))
        more = [(number + n, BEGIN_MS, key.encode(), value) for n in range(20)]
        step.add(Chunk(Place("metrics", 0), more[:1], number + 1))
        return lines_run(lambda: step.add(Chunk(Place("metrics", 0), more[1:], number + 20)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "FEW_RECORDS", 0)
        assert_same(cost(FEW), cost(MANY))


@pytest.mark.parametrize(
    ("value", "most"),
    [
        (b"\x0a\x00" * 1_000, 8),  # resources
        (b"\x0a\x04\x12\x02\x12\x00" * 1_000, 15),  # each with an empty metric
        (b'{"resourceMetrics":[%s]}' % b",".join([b"{}"] * 1_000), 1),
        (otlp.encode(otlp.resource_metrics([pb.Metric()] * 1_000)), 25),
        (otlp.encode(otlp.resource_metrics([otlp.gauge("n", *[pb.NumberDataPoint()] * 1_000)])), 15),
    ],
    ids=["resources", "resources with an empty metric", "JSON", "metrics", "points"],
)
def test_an_empty_message_of_otlp_costs_little(value: bytes, most: int) -> None:
    """A record of 64 KiB may have 30,000 of them. What is not refused as a whole is refused in a few lines."""
    table = Table(State(), TableSettings(otlp_topics=(otlp.TOPIC,)))
    one = Record(otlp.TOPIC, 0, 1, otlp.BEGIN_NS // 1_000_000, None, value)
    assert lines_run(lambda: table.apply_record(one)) <= 1_000 * most
    assert table.outputs().dead


def test_a_stream_of_otlp_with_a_start_time_of_its_own_costs_little() -> None:
    """It is a life: here each of 100 new ones, their next points, by which they become known, and the third ones."""
    table, spent = Table(State(), TableSettings(otlp_topics=(otlp.TOPIC,))), []
    for time_ns in range(otlp.BEGIN_NS, otlp.BEGIN_NS + 3):
        points = [otlp.number(1, otlp.BEGIN_NS - n * 10**6, time_ns) for n in range(100)]
        metrics = [otlp.counter(f"n{n}", point) for n, point in enumerate(points)]
        value = otlp.encode(otlp.resource_metrics(metrics, service__name="shop"))
        one = Record(otlp.TOPIC, 0, time_ns - otlp.BEGIN_NS, otlp.BEGIN_NS // 1_000_000, None, value)
        spent.append(work(table, one) / 100)
    assert spent[0] < 580
    assert spent[1] < 545
    assert spent[2] < 360


HEADER = b'{"app":"a","life":"%s","part":0,"seq":%d,"ts":0,"every_ms":60000,"final":false,"metrics":[%s]}'


@pytest.mark.parametrize(
    "metric", ["1", '{"name":"a","type":"counter","count":1}', '{"name":"g","type":"gauge","value":NaN}']
)
def test_what_is_refused_after_ten_is_only_counted(metric: str) -> None:
    """A record with 500 refused metrics makes eleven dead letters, and only ten metrics are written as text."""
    value = HEADER % (
        life_of(1).encode(),
        1,
        b",".join([b'{"name":"a","type":"counter","count":1}', *[metric.encode()] * 500]),
    )
    assert letters_and_texts(record(1, value)) == (11, 10)


def test_falling_counts_after_ten_are_only_counted() -> None:
    """The same for counts that fall, with and without a block."""
    first = snapshot(1, *(f"n{n}" for n in range(500)), seq=1).replace(b'"count": 1', b'"count": 5')
    table = table_of([record(1, first)])
    assert letters_and_texts(record(2, snapshot(1, *(f"n{n}" for n in range(500)), seq=2)), table) == (11, 10)


def test_refused_points_after_ten_are_only_counted() -> None:
    """The same for points of OTLP, here without a start time."""
    points = [otlp.number(1, 0, attributes=otlp.attributes(n=n)) for n in range(500)]
    resource = otlp.resource_metrics([otlp.counter("n", *points)], service__name="shop", service__instance__id="a")
    one = Record(otlp.TOPIC, 0, 1, otlp.BEGIN_NS // 1_000_000, None, otlp.encode(resource))
    assert letters_and_texts(one) == (11, 10)


def letters_and_texts(one: Record, table: Table | None = None) -> tuple[int, int]:
    """Return how many dead letters a record makes, and how many metrics are written as text for them."""
    texts = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal texts
            texts += 1
            return function(*args, **options)

        return call

    table = table or Table(State(), TableSettings(otlp_topics=(otlp.TOPIC,)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apply, "_json", counted(apply._json))
        patch.setattr(decode, "json", SimpleNamespace(loads=json.loads, dumps=counted(json.dumps)))
        patch.setattr(otlp_decode, "_text", counted(otlp_decode._text))
        table.apply_record(one)
    return len(table.outputs().dead), texts
