"""The streams of processes: their sums, times and restarts, and those whose start is not known."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.fuzz import examples
from support.kept import require_as_new
from support.otlp import (
    APP,
    BEGIN_MS,
    BEGIN_NS,
    CUMULATIVE,
    SECOND_NS,
    TOPIC,
    Fleet,
    apply,
    attributes,
    counter,
    encode,
    gauge,
    number,
    resource_metrics,
    sums_of,
)
from support.replayed import TopicRecord, replay
from support.steps import publish, run
from support.tables import Tables, divide
from tallystream.ulid import ulid_ms
from tallystream_aggregator.sums import VALUES
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.records.decode import Forget
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.state import pack, unpack
from tallystream_aggregator.table.sum_tags import SumTags

LATER_NS = BEGIN_NS + 2 * SECOND_NS


def test_streams_of_two_scopes_are_added() -> None:
    """Two libraries that count under one name are two streams: their counts are added."""
    value = encode(
        resource_metrics([counter("n", number(5))], scope="one", **APP),
        resource_metrics([counter("n", number(3))], scope="two", **APP),
    )
    assert sums_of(apply(value)) == {"counter n": {"count": 8}}


@pytest.mark.parametrize(("after_s", "states"), [(179, (2, 0, 0)), (180, (1, 0, 1))])
def test_a_process_that_stops_is_silent(after_s: int, states: tuple[int, int, int]) -> None:
    """It is so three minutes after its last record, shut down or killed: nothing in OTLP tells."""
    table = Table(State(), TableSettings(otlp_topics=(TOPIC,)))
    for offset, (instance, at_s) in enumerate((("app-1", 3), ("app-2", 3), ("app-2", 3 + after_s))):
        point = number(offset, time_ns=BEGIN_NS + at_s * SECOND_NS)
        of = {**APP, "service__instance__id": instance}
        value = encode(resource_metrics([counter("n", point)], **of))
        changes = run(table, [Record(TOPIC, 0, offset, BEGIN_MS + 1000 * at_s, None, value)])
        for total in changes.instances:
            found = total.instances, total.ended, total.silent
    assert found == states


def test_of_two_points_with_one_time_the_higher_one_counts() -> None:
    """In any order. In one resource the second one is a dead letter."""
    one, other = (resource_metrics([counter("n", number(count))], **APP) for count in (5, 9))
    both = resource_metrics([counter("n", number(5), number(9))], **APP)
    for values, letters, total in (
        ([encode(both)], 1, 5),
        ([encode(one, other)], 0, 9),
        ([encode(one), encode(other)], 0, 9),
        ([encode(other), encode(one)], 0, 9),
    ):
        changes = apply(*values)
        assert sums_of(changes) == {"counter n": {"count": total}}
        assert len(changes.dead) == letters


@pytest.mark.parametrize(
    "forget",
    [
        Forget(metric="m").value(),
        b'{"v":1,"forget":{"metric":"m"}}',
        b'{ "v": 1,\n "forget": {"metric": "m"} }',
        b'{"forget":{"metric":"m"}}',
    ],
)
def test_tombstones_and_forget_records_work_in_an_otlp_topic(forget: bytes) -> None:
    """`tallystream forget` writes to the partition of a life: its records are no OTLP, and are applied.

    So are those that people write, with or without a version and spaces.
    """
    value = encode(resource_metrics([counter("n", number(5)), counter("m", number(1))], **APP))
    changes = apply(value, (b"app-1", forget))
    assert changes.dead == []
    assert sums_of(changes) == {"counter n": {"count": 5}, "counter m": {"count": 0}}
    changes = apply(value, (b"app-1", forget), (b"app-1", None))
    assert changes.dead == []
    assert sums_of(changes) == {"counter n": {"count": 0}, "counter m": {"count": 0}}


@pytest.mark.parametrize(
    ("one_ns", "other_ns"), [(-1, 2 * SECOND_NS + 5_000_000), (50_000_000, 40_000_000), (50_000_000, 70_000_000)]
)
def test_a_stream_that_begins_while_the_sdk_collects_is_no_restart(one_ns: int, other_ns: int) -> None:
    """Its start is after the time of its own point, or of the collection before, and before or after other starts."""
    first = [counter("a", number(1, BEGIN_NS + one_ns, BEGIN_NS))]
    second = [
        counter("a", number(2, BEGIN_NS + one_ns, LATER_NS)),
        counter("c", number(1, BEGIN_NS + other_ns, LATER_NS)),
    ]
    values = [encode(resource_metrics(metrics, **APP)) for metrics in (first, second)]
    assert apply(*values).events == []


def test_a_restart_is_one_event_and_a_new_instrument_is_none() -> None:
    """The instruments of a process begin at several times. A stream that begins after all its points is a restart."""
    first = [counter("a", number(1, BEGIN_NS)), counter("b", number(1, BEGIN_NS + 80_000)), gauge("g", number(1, 0))]
    late = [
        counter("a", number(2, BEGIN_NS, LATER_NS)),
        counter("c", number(1, BEGIN_NS + SECOND_NS + 1, LATER_NS)),
    ]
    restarted_ns = LATER_NS + SECOND_NS
    restarted = [
        gauge("g", number(1, 0, restarted_ns + SECOND_NS)),
        counter("b", number(1, restarted_ns + 80_000, restarted_ns + SECOND_NS)),
        counter("a", number(1, restarted_ns, restarted_ns + SECOND_NS)),
    ]
    values = [encode(resource_metrics(metrics, **APP)) for metrics in (first, late, restarted)]
    assert apply(*values[:2]).events == []
    changes = apply(*values)
    assert [event.kind for event in changes.events] == ["restart"]
    assert sums_of(changes)["counter a"] == {"count": 3}


def test_many_streams_that_begin_with_a_record_are_one_restart_of_their_instance() -> None:
    """Each begins after all points of the others. The event has the first life. The next record is another restart."""

    def resource(instance: str, *seconds: int) -> pb.ResourceMetrics:
        points = [number(1, ns(second), ns(second)) for second in seconds]
        return resource_metrics([counter("a", *points)], service__name="shop", service__instance__id=instance)

    values = [
        encode(resource("i", 0, 2, 4, 6), resource("j", 1, 3), resource("i", 8)),
        encode(resource("i", 10, 12)),
    ]
    found = [(event.offset, event.instance, ulid_ms(event.life) - BEGIN_MS) for event in apply(*values).events]
    assert found == [(0, "i", 2000), (0, "j", 3000), (1, "i", 10_000)]


APPEND_MS = BEGIN_NS // 1_000_000 + 60_000
SCRAPED = {"service__name": "shop", "service__instance__id": "target:80"}
SETTINGS = TableSettings(otlp_topics=(TOPIC,))


def ns(second: float) -> int:
    return BEGIN_NS + int(second * SECOND_NS)


def record(*metrics: pb.Metric, **resource: Any) -> bytes:
    return encode(resource_metrics(metrics, **(SCRAPED | resource)))


def at(value: float, start: float, time: float, names: Sequence[str] = ("requests",)) -> bytes:
    """Return a record with counters, as the Collector scraped it at this second."""
    return record(*(counter(name, number(value, ns(start), ns(time))) for name in names))


def newest_sums(table: Table) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the fields of all sums of a table, by type and name."""
    table.publish_all()
    fields = (*VALUES, "bounds", "counts")
    return {
        (total.type, total.name): {name: value for name in fields if (value := getattr(total, name)) not in (None, [])}
        for total in publish(table).totals
    }


def summed(*values: bytes, partitions: int = 1) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the sums of records. They are those of verify, and those of a table that is made again from the rows."""
    table, latest = Table(State(), SETTINGS), LatestRows()
    for row in apply(*values, table=table, partitions=partitions).rows:
        latest.add(row.key, row.value())
    [state] = restore(latest).states
    found = newest_sums(table)
    assert newest_sums(Table(state, SETTINGS)) == found
    require_as_new(table)
    return found


@pytest.mark.parametrize("names", [["requests"], ["errors", "requests"]])
def test_a_collector_that_scrapes_and_restarts_counts_nothing_twice(names: list[str]) -> None:
    """The processor metric_start_time begins a new stream at the first scrape after the restart, at the target's count.

    What was counted before the first Collector, and while there was none, is in no stream.
    """

    def points(*of: tuple[float, float, float]) -> list[bytes]:
        return [at(*one, names) for one in of]

    def sums(kind: str, **fields: Any) -> dict[tuple[str, str], dict[str, Any]]:
        return {(kind, name): fields for name in names}

    began = points((0, 0, 0), (1000, 0, 10), (1010, 0, 20))
    restarted = points((1010, 30, 30), (1015, 30, 40))
    assert summed(*began, *restarted) == sums("counter", count=1015)
    assert summed(*points((1000, 10, 10), (1010, 10, 20)), *restarted) == sums("counter", count=15)
    assert summed(*points((1010.5, 30, 30), (1015.5, 30, 40))) == sums("float_counter", sum=5.0)


def test_a_target_that_restarts_is_counted_from_0() -> None:
    """The processor gives the first point after a count that fell a start time of a millisecond before its time."""
    assert summed(at(1000, 0, 0), at(1010, 0, 10), at(3, 19.999, 20), at(5, 19.999, 30)) == {
        ("counter", "requests"): {"count": 15}
    }


def test_the_points_of_an_sdk_count_though_their_start_is_their_own_time() -> None:
    """That for JavaScript gives an observable counter the time of its first collection as the start time."""
    metric = counter("requests", number(7, ns(0), ns(0)))
    assert summed(record(metric, telemetry__sdk__language="nodejs")) == {("counter", "requests"): {"count": 7}}
    assert summed(record(metric)) == {("counter", "requests"): {"count": 0}}


def distributions(count: int, start: float, time: float, low: int = 0) -> bytes:
    """Return a record with a distribution of each kind that has so many values of 2, or no sum if they are odd.

    In the explicit buckets, `low` of them are in the first bucket.
    """
    times = {"start_time_unix_nano": ns(start), "time_unix_nano": ns(time), "count": count}
    given_sum = {"sum": 2.0 * count} if count % 2 == 0 else {}
    extremes = {"min": 2.0, "max": 2.0}
    explicit = pb.HistogramDataPoint(
        explicit_bounds=[1.0, 3.0], bucket_counts=[low, count - low, 0], **times, **given_sum, **extremes
    )
    exponential = pb.ExponentialHistogramDataPoint(scale=0, **times, **given_sum, **extremes)
    exponential.positive.bucket_counts.append(count)
    summary = pb.SummaryDataPoint(sum=2.0 * count, **times)
    return record(
        pb.Metric(name="e", histogram=pb.Histogram(data_points=[explicit], aggregation_temporality=CUMULATIVE)),
        pb.Metric(
            name="x",
            exponential_histogram=pb.ExponentialHistogram(
                data_points=[exponential], aggregation_temporality=CUMULATIVE
            ),
        ),
        pb.Metric(name="s", summary=pb.Summary(data_points=[summary])),
    )


def test_distributions_have_baselines() -> None:
    """Counts, sums and buckets are those since the baseline. There are no quantiles: they would be of all values."""
    found = summed(distributions(10, 30, 30), distributions(14, 30, 40))
    counted = {"count": 4, "sum": 8.0}
    assert found["histogram", "e"] == found["histogram", "x"] == counted | {"min": 2.0, "max": 2.0}
    assert found["histogram", "s"] == counted
    assert found["buckets", "e"] == {"count": 4, "bounds": [1.0, 3.0], "counts": [0, 4, 0]}
    assert "sum" not in summed(distributions(11, 30, 30), distributions(14, 30, 40))["histogram", "e"]
    nothing = summed(distributions(11, 30, 30))
    assert nothing["histogram", "e"] == nothing["histogram", "x"] == {"count": 0, "sum": 0.0}
    assert nothing["buckets", "e"] == {"count": 0}
    fallen = summed(distributions(10, 30, 30, low=2), distributions(14, 30, 40, low=1))
    assert fallen["buckets", "e"] == {"count": 4}, "one bucket has less than before the stream began"
    assert "p50" in summed(distributions(0, 30, 30), distributions(14, 30, 40))["histogram", "x"], (
        "it counts all values"
    )


def test_a_sum_too_far_from_its_baseline_is_the_largest_float() -> None:
    """The difference is beyond the range of floats, and the aggregator goes on."""
    points = [
        pb.HistogramDataPoint(start_time_unix_nano=ns(30), time_unix_nano=ns(time), count=count, sum=total)
        for time, count, total in ((30, 1, -1.7e308), (40, 2, 1.7e308))
    ]
    records = [
        record(pb.Metric(name="e", histogram=pb.Histogram(data_points=[one], aggregation_temporality=CUMULATIVE)))
        for one in points
    ]
    assert summed(*records)["histogram", "e"] == {"count": 1, "sum": sys.float_info.max}


def stored(table: Table) -> Table:
    """Return the table as it is loaded."""
    return Table(unpack(pack(table.state)), SETTINGS)


def from_rows(table: Table) -> Table:
    """Return the table as it is made again from its rows."""
    table.publish_all()
    latest = LatestRows()
    for row in table.rows():
        latest.add(row.key, row.value())
    return Table(restore(latest).states[0], SETTINGS)


@pytest.mark.parametrize("names", [["requests"], ["errors", "requests"]])
@pytest.mark.parametrize("again", [lambda table: table, stored, from_rows])
def test_a_count_below_its_baseline_counts_nothing(again: Callable[[Table], Table], names: list[str]) -> None:
    """A tombstone removes the counts, not the baselines. The next points of the stream may have any count."""
    table = Table(State(), SETTINGS)
    values = [(b"target:80", value) for value in (at(1000, 10, 10, names), at(1010, 10, 20, names), None)]
    run(table, [Record(TOPIC, 0, n, APPEND_MS, *one) for n, one in enumerate(values)])
    for second, value, counted in ((30, 500, 0), (31, 600, 0), (32, 1020, 20), (33, 1021, 21)):
        run(table, [Record(TOPIC, 0, second, APPEND_MS, None, at(value, 10, second, names))])
        table = again(table)
        assert newest_sums(table) == {("counter", name): {"count": counted} for name in names}


@pytest.mark.parametrize("sum_tags", [SumTags(), SumTags(drop=("pod",))])
@pytest.mark.parametrize("again", [lambda table: table, stored, from_rows])
def test_a_metric_with_nothing_but_a_baseline_is_dropped_with_its_life(
    sum_tags: SumTags, again: Callable[[Table], Table]
) -> None:
    """Until then it keeps its number."""
    table = Table(State(sum_tags=sum_tags), SETTINGS)
    values = [(b"target:80", value) for value in (at(1000, 10, 10), None)]
    run(table, [Record(TOPIC, 0, n, APPEND_MS, *one) for n, one in enumerate(values)])
    table = again(table)
    assert len(table.state.metrics) == 1
    run(table, [Record(TOPIC, 0, 2, APPEND_MS + SETTINGS.forget_after_ms + 1, b"x", None)])
    assert not table.state.metrics


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
    tables = Tables(records, TableSettings(otlp_topics=("metrics",)), shards, chance)
    for ends in divide(records, [size]):
        if chance.random() < broken:
            tables.begin_again(from_rows=chance.random() < 0.5)
        tables.step(ends)
    lives = [life for state in tables.states for known in state.lives.values() for life in known.values()]
    assert {life.complete for life in lives} == {False}
    replayed = replay(records, shards=shards, otlp_topics=("metrics",))
    assert not replayed.differing(tables.sums)
    assert tables.dead == replayed.dead == {}
    for sums in (tables.sums, tables.all_sums()):
        found = {
            (name, dict(tags)["topic"]): fields["count"]
            for (_, name, kind, tags), fields in sums.items()
            if kind == "counter"
        }
        assert found == fleet.counted


@examples(60)
@given(st.integers(0, 2**63), st.sampled_from([1, 2]))
def test_the_order_of_the_records_makes_no_difference(seed: int, partitions: int) -> None:
    """Streams with and without a baseline, divided and repeated, in any order over the partitions, and contradictions.

    The points of one stream and time may have two values: then the higher one is that of the baseline, too.
    """
    chance = random.Random(seed)
    values = []
    for _ in range(chance.randint(1, 8)):
        start = chance.choice([0, 10, 20])
        metrics = [
            counter(
                chance.choice("ab"),
                number(
                    chance.choice([0, 1, 5, 7.5]), ns(start), ns(time), attributes=attributes(k=chance.choice("xy"))
                ),
            )
            for time in chance.sample([start, start + 1, start + 2], chance.randint(1, 3))
        ]
        values.append(record(*metrics, **chance.choice([{}, {}, {"telemetry__sdk__language": "nodejs"}])))
    wanted = summed(*values, partitions=partitions)
    chance.shuffle(values)
    assert summed(*values, partitions=partitions) == wanted
