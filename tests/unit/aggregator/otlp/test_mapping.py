"""docs/otlp.md, point by point: each OTLP batch with its sums and its dead letters, by the table and by verify."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.otlp import (
    APP,
    BEGIN_MS,
    BEGIN_NS,
    DELTA,
    SECOND_NS,
    TOPIC,
    Sums,
    apply,
    attributes,
    buckets,
    counter,
    encode,
    gauge,
    number,
    resource_metrics,
    sums_of,
)
from tallystream_aggregator.sinks.base import Field, Point
from tallystream_aggregator.sinks.otlp import request
from tallystream_aggregator.table import State, Table, TableSettings

LATER_NS = BEGIN_NS + 2 * SECOND_NS
LARGEST = 2**63 - 1
TIMES = {"start_time_unix_nano": BEGIN_NS, "time_unix_nano": BEGIN_NS + SECOND_NS}
CUMULATIVE = {"aggregation_temporality": pb.AGGREGATION_TEMPORALITY_CUMULATIVE}


def explicit(counts: list[int], bounds: list[float], **fields: Any) -> pb.Metric:
    count = fields.pop("count", sum(counts))
    point = pb.HistogramDataPoint(count=count, bucket_counts=counts, explicit_bounds=bounds, **TIMES, **fields)
    return pb.Metric(name="t", histogram=pb.Histogram(data_points=[point], **CUMULATIVE))


def exponential(scale: int, offset: int, counts: list[int], **fields: Any) -> pb.Metric:
    zeros = fields.get("zero_count", 0)
    point = pb.ExponentialHistogramDataPoint(
        count=fields.pop("count", sum(counts) + zeros), scale=scale, **TIMES, **fields
    )
    point.positive.offset = offset
    point.positive.bucket_counts.extend(counts)
    return pb.Metric(name="t", exponential_histogram=pb.ExponentialHistogram(data_points=[point], **CUMULATIVE))


def summary(count: int, total: float) -> pb.Metric:
    point = pb.SummaryDataPoint(count=count, sum=total, **TIMES)
    point.quantile_values.add(quantile=0.5, value=1.0)
    return pb.Metric(name="t", summary=pb.Summary(data_points=[point]))


def without_sum(count: int, **times: int) -> pb.Metric:
    point = pb.HistogramDataPoint(count=count, **{**TIMES, **times})
    return pb.Metric(name="t", histogram=pb.Histogram(data_points=[point], **CUMULATIVE))


def tagged(**values: Any) -> pb.Metric:
    return counter("n", number(1, attributes=attributes(**values)))


FALLS = counter("open", number(-3), monotonic=False)
TWICE = counter("n", number(5), number(7, BEGIN_NS, LATER_NS))
RESTARTED = counter("n", number(5), number(2, BEGIN_NS + SECOND_NS, LATER_NS))
LATER = {"start_time_unix_nano": BEGIN_NS + SECOND_NS, "time_unix_nano": LATER_NS}
REBOUND_POINT = pb.HistogramDataPoint(count=4, bucket_counts=[4, 0], explicit_bounds=[2.0], **LATER)
REBOUND = pb.Metric(name="t", histogram=pb.Histogram(data_points=[REBOUND_POINT], **CUMULATIVE))
PLAIN = {"number": 1, "min": 2.5, "max": 2.5, "sum": 2.5}
CASES: dict[str, tuple[list[pb.Metric], Sums, list[str]]] = {
    "a monotonic sum is a counter": ([counter("n", number(5))], {"counter n": {"count": 5}}, []),
    "of two points of a stream the newest counts": ([TWICE], {"counter n": {"count": 7}}, []),
    "a later start time is a new life, and adds": ([RESTARTED], {"counter n": {"count": 7}}, []),
    "a monotonic sum of floats is a float counter": (
        [counter("n", number(0.1), number(0.2, BEGIN_NS + SECOND_NS, LATER_NS))],
        {"float_counter n": {"sum": 0.1 + 0.2}},
        [],
    ),
    "a float counter that falls is refused": (
        [counter("n", number(2.5), number(2.25, BEGIN_NS, LATER_NS))],
        {"float_counter n": {"sum": 2.5}},
        ["from 2.5 to 2.25"],
    ),
    "a negative count is refused": ([counter("n", number(-1))], {}, ["never below 0"]),
    "a delta is refused": ([counter("n", number(5), temporality=DELTA)], {}, ["TEMPORALITY_PREFERENCE=cumulative"]),
    "an unknown temporality is refused": ([counter("n", number(5), temporality=0)], {}, ["temporality is unknown"]),
    "no start time is refused": ([counter("n", number(5, 0))], {}, ["no start time"]),
    "a point without a value is refused": ([counter("n", pb.NumberDataPoint(**TIMES))], {}, ["no value"]),
    "a flag tells that there is no value": ([counter("n", number(5, flags=1))], {}, []),
    "another sum is an updown": ([FALLS], {"updown open": {"sum": -3, "min": -3, "max": -3, "number": 1}}, []),
    "a gauge": ([gauge("g", number(2.5, 0))], {"gauge g": PLAIN}, []),
    "a gauge that is no number is refused": ([gauge("g", number(float("nan")))], {}, ["can't be summed"]),
    "explicit buckets are one metric": (
        [explicit([1, 2, 0], [0.5, 1.0], sum=1.9, min=0.4, max=0.9)],
        {
            "histogram t": {"count": 3, "sum": 1.9, "min": 0.4, "max": 0.9},
            buckets(0.5, 1.0): {"count": 3, "bounds": [0.5, 1.0], "counts": [1, 2, 0]},
        },
        [],
    ),
    "bounds that do not rise are refused": ([explicit([1, 1, 0], [1.0, 1.0])], {}, ["do not rise"]),
    "buckets of a life with other bounds are another metric, whose earlier lives are silent": (
        [explicit([1, 2], [1.0]), REBOUND],
        {
            "histogram t": {"count": 7},
            buckets(1.0): {"count": 3, "counts": [1, 2]},
            buckets(2.0): {"count": 4, "counts": [4, 0]},
        },
        [],
    ),
    "a bound that is no number is refused": ([explicit([1, 1], [float("nan")])], {}, ["is not finite"]),
    "more than 4,096 buckets are refused": ([explicit([0] * 4_097, list(range(4_096)))], {}, ["at most 4096 counts"]),
    "a single bucket has no bounds": ([explicit([2], [])], {"histogram t": {"count": 2}}, []),
    "buckets of a point with the attribute bounds are refused": (
        [explicit([1, 0], [1.0], attributes=attributes(bounds="x"))],
        {},
        ["leave no room"],
    ),
    "a histogram without a sum has none": (
        [explicit([2, 1], [0.0], min=-5.0, max=2.0)],
        {"histogram t": {"count": 3, "sum": None, "min": -5.0, "max": 2.0}, buckets(0.0): {"counts": [2, 1]}},
        [],
    ),
    "one life without a sum leaves the total without one": (
        [explicit([], [], count=2, sum=20.0), without_sum(3, start_time_unix_nano=BEGIN_NS + 1)],
        {"histogram t": {"count": 5, "sum": None}},
        [],
    ),
    "buckets that do not fit are refused": ([explicit([1, 2], [0.5, 1.0])], {}, ["do not fit"]),
    "exponential buckets are a sketch": (
        [exponential(6, 0, [0, 2], sum=2.0, min=1.0, max=1.02)],
        {"histogram t": {"count": 2, "sum": 2.0, "min": 1.0, "max": 1.02, "p50": pytest.approx(1.0164, abs=1e-3)}},
        [],
    ),
    "a scale above 20 is merged to 20": ([exponential(21, 4, [1, 1], sum=2.0)], {"histogram t": {"count": 2}}, []),
    "the smallest scale is refused": ([exponential(-(2**31), 0, [1])], {}, ["the scale is -2147483648"]),
    "more buckets than a sketch has are merged": (
        [exponential(8, 0, [1] * 5000, sum=1.0)],
        {"histogram t": {"count": 5000}},
        [],
    ),
    "buckets with more values than a count can have are refused": (
        [exponential(21, 0, [2**63, 2**63, 1], count=1)],
        {},
        ["the buckets have 18446744073709551617 values"],
    ),
    "buckets beyond the range of floats are refused": ([exponential(0, 5000, [1])], {}, ["range of floats"]),
    "a summary has a count and a sum": ([summary(3, 4.5)], {"histogram t": {"count": 3, "sum": 4.5}}, []),
    "attributes of all types are tags": (
        [tagged(a="x", b=True, c=7, d=1.5, e=b"\x00", f=["a", 1], g="")],
        {'counter n a=x b=true c=7 d=1.5 e=AA== f=["a",1] g=': {"count": 1}},
        [],
    ),
    "too many attributes are refused": ([tagged(**{f"a{n}": 1 for n in range(33)})], {}, ["33 attributes"]),
    "too long an attribute is refused": ([tagged(a="x" * 513)], {}, ["can't be a tag"]),
    "a metric without a name is refused": ([counter("", number(1))], {}, ["the name can't be used"]),
    "a metric without data is refused": ([pb.Metric(name="n")], {}, ["no data of a known type"]),
    "neighbours of a refused point count": (
        [counter("n", number(-1), number(5, attributes=attributes(a="b")))],
        {"counter n a=b": {"count": 5}},
        ["never below 0"],
    ),
}


@pytest.mark.parametrize("as_json", [False, True], ids=["proto", "json"])
@pytest.mark.parametrize(("metrics", "sums", "reasons"), CASES.values(), ids=CASES)
def test_each_kind_of_point(metrics: list[pb.Metric], sums: Sums, reasons: list[str], *, as_json: bool) -> None:
    """The sums and dead letters of one batch, in protobuf and in JSON; verify's own reader makes the same of it."""
    changes = apply(encode(resource_metrics(metrics, **APP), as_json=as_json))
    found = sums_of(changes)
    assert found.keys() == sums.keys()
    for name, fields in sums.items():
        assert {field: found[name].get(field) for field in fields} == fields
    assert len(changes.dead) == len(reasons)
    for letter, reason in zip(changes.dead, reasons, strict=True):
        assert reason in letter.reason
        assert letter.metric is not None


def tags(number_of_tags: int, **more: Any) -> list[Any]:
    return attributes(**{f"tag-{tag}": "x" for tag in range(number_of_tags)}, **more)


APPENDED_NS = BEGIN_NS + 3 * SECOND_NS
DAY_NS = 86_400 * SECOND_NS
EDGES = {
    "start 1": (counter("n", number(5, start_ns=1)), 0),
    "start in centuries": (counter("n", number(5, start_ns=LARGEST)), 1),
    "start beyond 63 bits": (counter("n", number(5, start_ns=LARGEST + 1)), 1),
    "no time": (counter("n", number(5, time_ns=0)), 1),
    "a day ahead": (counter("n", number(5, time_ns=APPENDED_NS + DAY_NS)), 0),
    "more than a day ahead": (counter("n", number(5, time_ns=APPENDED_NS + DAY_NS + 1_000_000)), 1),
    "two points late": (counter("n", *[number(5, BEGIN_NS - DAY_NS, APPENDED_NS - DAY_NS)] * 2), 2),
    "two starts ahead": (counter("n", *[number(5, start_ns=APPENDED_NS + DAY_NS + 1_000_000)] * 2), 2),
    "32 tags": (counter("n", number(5, attributes=tags(32))), 0),
    "buckets with 31 tags": (explicit([1, 1], [5], attributes=tags(31)), 0),
    "buckets with 32 tags": (explicit([1, 1], [5], attributes=tags(32)), 1),
    "largest count": (counter("n", number(LARGEST)), 0),
    "largest count of a histogram": (without_sum(LARGEST), 0),
    "count of a histogram beyond 63 bits": (without_sum(LARGEST + 1), 1),
    "largest gauge": (gauge("g", number(LARGEST)), 0),
    "name of 512": (counter("n" * 512, number(5)), 0),
    "name of 513": (counter("n" * 513, number(5)), 1),
}


@pytest.mark.parametrize(("metric", "refused"), EDGES.values(), ids=EDGES)
def test_each_bound_of_a_point_is_that_of_verify(metric: pb.Metric, refused: int) -> None:
    """To the same number. Other metrics of the record count."""
    changes = apply(encode(resource_metrics([metric, counter("other", number(7))], **APP)))
    assert len(changes.dead) == refused
    assert sums_of(changes)["counter other"] == {"count": 7}


LONG = "x" * 512


@pytest.mark.parametrize(
    ("resource", "app", "instance"),
    [
        ({"service__name": "shop", "service__instance__id": "a"}, "shop", "a"),
        ({"service__name": "shop", "service__namespace": "eu", "service__instance__id": "a"}, "eu/shop", "a"),
        ({"service__name": "shop", "k8s__pod__uid": "u", "k8s__pod__name": "p"}, "shop", "u"),
        ({"service__name": "shop", "k8s__pod__name": "p", "host__name": "h"}, "shop", "p"),
        ({"service__name": "shop", "container__id": "c", "process__pid": 7}, "shop", "c"),
        ({"service__name": "shop", "host__name": "h", "process__pid": 7}, "shop", "h:7"),
        ({"service__name": "shop", "process__pid": 7}, "shop", "unknown:7"),
        ({"service__instance__id": "", "host__name": "h"}, "unknown_service", "h"),
        ({}, "unknown_service", "unknown"),
        pytest.param({"service__name": LONG, "host__name": 2 * LONG}, LONG, 2 * LONG, id="longest names"),
    ],
)
def test_the_resource_names_app_and_instance(resource: dict[str, Any], app: str, instance: str) -> None:
    """service.name is the app; the first attribute that names an instance is the instance. Verify refuses none."""
    table = Table(State(), TableSettings(otlp_topics=(TOPIC,)))
    changes = apply(encode(resource_metrics([counter("n", number(1))], **resource)), table=table)
    assert [total.metric[0] for total in changes.totals] == [app]
    assert list(table.state.lives) == [instance]


SURROGATE = encode(resource_metrics([gauge("g", number(1.5))], **APP), as_json=True).replace(b"1.5", b'"\\ud800"')


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x0a\xff", "not OTLP metrics"),
        (b"{", "not OTLP metrics"),
        (b'{"metrics":[]}', "JSON without resourceMetrics"),
        (SURROGATE, "not OTLP metrics"),
        (encode(resource_metrics([counter("n", number(1))], service__instance__id="x" * 1025)), "can't be an instance"),
        (
            encode(resource_metrics([counter("n", number(1))], process__pid="x" * 1017)),
            "process.pid can't be an instance",
        ),
        (encode(resource_metrics([counter("n", number(1))], service__name="x" * 513)), "service.name has 513"),
    ],
)
def test_a_record_without_an_instance_is_a_dead_letter(value: bytes, reason: str) -> None:
    """What can't be read stops nothing: a dead letter with the reason, by verify, too."""
    changes = apply(value, encode(resource_metrics([counter("n", number(5))], **APP)))
    assert [reason in letter.reason for letter in changes.dead] == [True]
    assert reason in json.loads(changes.dead[0].value())["reason"]
    assert sums_of(changes) == {"counter n": {"count": 5}}


def test_an_empty_batch_is_nothing() -> None:
    """A record without resources, or with empty ones, changes nothing and makes no dead letter."""
    without_data = resource_metrics([], service__instance__id="\0")
    changes = apply(b"", encode(), encode(pb.ResourceMetrics()), b'{"resourceMetrics":[]}', encode(without_data))
    assert (changes.totals, changes.dead) == ([], [])


@pytest.mark.parametrize("buckets", [False, True])
def test_a_negative_sum_that_our_own_sink_sends_is_not_read_back_as_0(*, buckets: bool) -> None:
    """The sink gives no sum of negative values, and so the second table has none."""
    sketch = b'{"scale":6,"zero_count":1,"negative":[{"offset":3,"counts":"Ag=="}]}'
    fields: dict[str, Field] = {"count": 3, "sum": -6.0, "min": -5.0, "max": 0.0}
    point = Point("t", {"app": "shop", "metric_type": "histogram"}, fields, BEGIN_MS + 2000, sketch)
    found = sums_of(apply(request.encode([point], buckets=buckets)))["histogram t metric_type=histogram"]
    assert {field: found.get(field) for field in fields} == {"count": 3, "sum": None, "min": -5.0, "max": 0.0}
    assert ("p50" in found) == buckets


@pytest.mark.parametrize(("refused", "letters"), [(10, 10), (11, 11), (12, 11), (39, 11)])
def test_a_record_makes_few_dead_letters(refused: int, letters: int) -> None:
    """Of many late points, and of many resources without a valid instance, there are ten dead letters and a number."""
    late = [number(1, BEGIN_NS - n, BEGIN_NS - DAY_NS) for n in range(refused)]
    bad = [resource_metrics([counter("n", number(1))], service__instance__id="\0")] * refused
    good = resource_metrics([counter("n", number(1))], **APP)
    for of, value in (
        ("metrics", encode(resource_metrics([counter("n", *late)], **APP))),
        ("parts", encode(*bad, good)),
    ):
        changes = apply(value)
        assert len(changes.dead) == letters
        if refused > 10:
            assert changes.dead[-1].reason == f"limit: {refused - 10} more {of} of this record are rejected"
    assert sums_of(changes) == {"counter n": {"count": 1}}


@pytest.mark.parametrize(("resources", "refused"), [(114, 0), (115, 1)])
def test_a_record_may_have_so_many_resources_whatever_was_read_before(resources: int, refused: int) -> None:
    """That the process knows the resource from another record does not change the limit, which verify has too."""
    known = encode(pb.ResourceMetrics(scope_metrics=[pb.ScopeMetrics(metrics=[counter("n", number(1))])]))
    assert len(apply(known, known, encode(*[pb.ResourceMetrics()] * resources)).dead) == refused


def test_points_of_a_day_ago_or_ahead_are_refused() -> None:
    """A point is refused by its own time and its record's append time: a day or more late, or more than a day early."""
    late = number(1, BEGIN_NS - 2 * DAY_NS, BEGIN_NS - DAY_NS)
    early = number(1, BEGIN_NS, BEGIN_NS + 2 * DAY_NS)
    began_early = number(1, BEGIN_NS + 2 * DAY_NS, BEGIN_NS)
    values = [encode(resource_metrics([counter("n", point)], **APP)) for point in (late, early, began_early)]
    changes = apply(*values)
    assert [letter.reason.split(";")[0] for letter in changes.dead] == [
        "too late: appended 86403000 ms after the point's time",
        "too early: the point's time is 172796000 ms ahead",
        "too early: the point's start time is 172795000 ms ahead",
    ]
    assert {letter.metric for letter in changes.dead} == {'{"name": "n", "tags": {}}'}
    assert changes.totals == []
