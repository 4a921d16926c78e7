"""The OTLP metric for each value of a point."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.protobuf.json_format import MessageToDict
from msgspec.structs import replace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from support.buckets import buckets, encoded
from support.levels import Contents, data_points, promised, sum_point
from support.stores import NOW_MS
from tallystream import record
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.otlp.request import encode, unfit
from tallystream_aggregator.sums import NO_SKETCH, Sum

NOW = str(NOW_MS * 10**6)
CUMULATIVE = {"aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE"}
MONOTONIC = {**CUMULATIVE, "isMonotonic": True}


def decoded(*points: Point, buckets: bool = False) -> list[dict[str, Any]]:
    """Return the resources of the request for some points."""
    request = ExportMetricsServiceRequest.FromString(encode(points, buckets=buckets))
    resources: list[dict[str, Any]] = MessageToDict(request)["resourceMetrics"]
    return resources


def metrics(*points: Point, buckets: bool = False) -> dict[str, Any]:
    """Return the metrics of points of one app, by name; each name occurs once."""
    (resource,) = decoded(*points, buckets=buckets)
    (scope,) = resource["scopeMetrics"]
    found = {metric.pop("name"): metric for metric in scope["metrics"]}
    assert len(found) == len(scope["metrics"])
    return found


@pytest.mark.parametrize(
    ("kind", "wanted"),
    {
        "counter": {"sum": MONOTONIC},
        "float_counter": {"sum": MONOTONIC},
        "meter": {"sum": MONOTONIC},
        "position": {"sum": MONOTONIC},
        "updown": {"sum": CUMULATIVE},
        "gauge": {"gauge": {}},
        "histogram": {"summary": {}},
        "timer": {"summary": {}, "unit": "s"},
        "buckets": {"histogram": CUMULATIVE},
    }.items(),
)
def test_each_type_becomes_a_metric_of_opentelemetry(kind: str, wanted: dict[str, Any]) -> None:
    """Counts are monotonic Sums, updowns non-monotonic Sums, distributions Summaries, and other fields gauges.

    No value is lost, and each cumulative stream has the same start, also after a decrease: that is no reset.
    """
    points = [sum_point(kind, n, ts, "m", {"topic": "x"}) for n, ts in ((5, 1), (3, NOW_MS), (9, 2**43))]
    main = metrics(*points)["m"]
    (of,) = main.keys() - {"unit"}
    del main[of]["dataPoints"]
    assert main == wanted
    request = ExportMetricsServiceRequest.FromString(encode(points))
    found: Contents = {}
    for (name, tags, ts_ms), fields in data_points([MessageToDict(request, use_integers_for_enums=True)]):
        found.setdefault((name, tags), {}).setdefault(ts_ms, {}).update(fields)
    assert found == promised("every point", points)


def test_explicit_buckets_are_a_histogram() -> None:
    """It has the metric's name. Without bounds, as when they overflow, it has one bucket."""
    row = Sum(app="a", name="m", type="buckets", count=6, bounds=[-0.5, 1.0], counts=[1, 2, 3], ts=NOW_MS)
    values = {"count": "6", "bucketCounts": ["1", "2", "3"], "explicitBounds": [-0.5, 1.0]}
    for one, wanted in ((row, values), (replace(row, bounds=[], counts=[]), {"count": "6", "bucketCounts": ["6"]})):
        found = metrics(point(one))["m"]["histogram"]
        assert found["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"
        (made,) = found["dataPoints"]
        assert {name: made.get(name) for name in wanted} == wanted
        assert made["startTimeUnixNano"] == "1"


def test_an_app_is_a_resource_and_a_metric_has_the_points_of_all_its_series() -> None:
    """The resource has the service's name and no instance. The scope has no version, which would start new streams."""
    points = [Sum(app=app, name="m", type="counter", tags={"n": n}, count=1, ts=NOW_MS) for n in "12" for app in "ab"]
    resources = decoded(*map(point, points))
    assert [resource["resource"] for resource in resources] == [
        {"attributes": [{"key": "service.name", "value": {"stringValue": app}}]} for app in "ab"
    ]
    for resource in resources:
        assert resource["scopeMetrics"][0]["scope"] == {"name": "tallystream"}
        assert [metric["name"] for metric in resource["scopeMetrics"][0]["metrics"]].count("m") == 1
        assert len(resource["scopeMetrics"][0]["metrics"][0]["sum"]["dataPoints"]) == 2


def test_metrics_of_one_identity_are_one() -> None:
    """A counter and a meter `m` are series of one Sum. A gauge `m.max` and the field of `m` are one metric.

    A counter and a gauge `m` are two metrics.
    """
    points = [sum_point(kind, 1, NOW_MS, name) for kind, name in (("counter", "m"), ("meter", "m"), ("gauge", "m.max"))]
    found = metrics(*points, sum_point("gauge", 1, NOW_MS, "m.max.max"), sum_point("updown", 1, NOW_MS, "n"))
    assert len(found["m"]["sum"]["dataPoints"]) == 2
    assert len(found["m.max.max"]["gauge"]["dataPoints"]) == 2
    (resource,) = decoded(sum_point("counter", 1, NOW_MS, "m"), sum_point("gauge", 1, NOW_MS, "m"))
    named = [metric for metric in resource["scopeMetrics"][0]["metrics"] if metric["name"] == "m"]
    assert [set(metric) for metric in named] == [{"name", "sum"}, {"name", "gauge"}]


def test_a_field_is_not_mistaken_for_a_metric_of_that_name() -> None:
    """The field `max` of `m` and a metric `m.max` differ in the attribute `field`. A tag with that name is renamed."""
    points = [sum_point("gauge", 1, NOW_MS, name, {"field": "max"}) for name in ("m", "m.max")]
    found = metrics(points[0])["m.max"], metrics(points[1])["m.max"]
    keys = [{one["key"] for one in metric["gauge"]["dataPoints"][0]["attributes"]} for metric in found]
    assert keys == [{"tag_field", "metric_type", "field"}, {"tag_field", "metric_type"}]


def test_tags_with_the_names_of_a_receivers_labels_are_renamed() -> None:
    """Tags that Prometheus would overwrite, and tags that begin with the prefix, get a prefix."""
    (metric,) = (metrics(sum_point("counter", 1, NOW_MS, "m", {"job": "a", "quantile": "b", "tag_job": "c"}))["m"],)
    found = {one["key"]: one["value"]["stringValue"] for one in metric["sum"]["dataPoints"][0]["attributes"]}
    assert found == {"tag_job": "a", "tag_quantile": "b", "tag_tag_job": "c", "metric_type": "counter"}


def test_a_distribution_with_negative_values() -> None:
    """OTLP has no sum that negative values lower, and a Summary without a sum would have 0. The sum is a gauge."""
    row = Sum(app="a", name="m", type="histogram", count=3, sum=-1.0, min=-3.0, max=4.0, p50=-2.0, p75=1.0, ts=NOW_MS)
    found = metrics(point(row))
    assert found["m"]["histogram"]["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"
    (made,) = found["m"]["histogram"]["dataPoints"]
    assert (made["count"], made["bucketCounts"], made["min"], made["max"]) == ("3", ["3"], -3.0, 4.0)
    assert "sum" not in made
    gauges = {name: metric["gauge"]["dataPoints"][0]["asDouble"] for name, metric in found.items() if name in LOWERED}
    assert gauges == LOWERED
    unknown = metrics(point(replace(row, sum=None, min=0.5, p50=0.75)))
    assert "sum" not in unknown["m"]["histogram"]["dataPoints"][0]
    assert "m.sum" not in unknown


SKETCH = record.Sketch(
    scale=6,
    zero_count=1,
    positive=encoded(buckets(37, 2), buckets(47, 1)),
    negative=encoded(buckets(-3, 3)),
)


def raw(sketch: record.Sketch) -> msgspec.Raw:
    """Return a sketch as a sum has it."""
    return msgspec.Raw(msgspec.json.encode(sketch))


@pytest.mark.parametrize(("kind", "unit"), [("histogram", ""), ("timer", "s")])
def test_a_distribution_with_a_sketch_is_a_histogram_with_its_buckets_if_they_are_wanted(kind: str, unit: str) -> None:
    """Empty buckets are written out. What a histogram can't hold are gauges, also the quantiles."""
    row = Sum(app="a", name="m", type=kind, count=7, min=-1.0, max=1.7, sum=2.0, p50=0.0, sketch=raw(SKETCH), ts=NOW_MS)
    found = metrics(point(row), buckets=True)
    assert found["m"].get("unit", "") == unit
    assert found["m"]["exponentialHistogram"]["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"
    (made,) = found["m"]["exponentialHistogram"]["dataPoints"]
    assert (made["count"], made["min"], made["max"], "sum" in made) == ("7", -1.0, 1.7, False)
    assert (made["startTimeUnixNano"], made["timeUnixNano"]) == ("1", NOW)
    assert (made["scale"], made["zeroCount"]) == (6, "1")
    assert made["positive"] == {"offset": 37, "bucketCounts": ["2", *["0"] * 9, "1"]}
    assert made["negative"] == {"offset": -3, "bucketCounts": ["3"]}
    gauges = {name: metric["gauge"]["dataPoints"][0].get("asDouble") for name, metric in found.items() if name != "m"}
    assert gauges == {"m.sum": 2.0, "m.p50": 0.0, "m.lives": None, "m.instances": None, "m.retired": None}


def test_a_distribution_is_a_summary_if_it_has_no_sketch_or_buckets_are_not_wanted() -> None:
    """A sum has no sketch while an instance without sketches is part of it. An invalid one is ignored."""
    row = Sum(app="a", name="m", type="histogram", count=7, sum=2.0, min=0.0, sketch=raw(SKETCH), ts=NOW_MS)
    assert "summary" in metrics(point(row))["m"]
    assert "exponentialHistogram" in metrics(point(row), buckets=True)["m"]
    for sketch in (NO_SKETCH, *map(msgspec.Raw, UNREADABLE)):
        assert metrics(point(replace(row, sketch=sketch)), buckets=True) == metrics(point(row))


UNREADABLE = [
    b"null",
    b'{"scale":60}',
    b'{"scale":6,"zero_count":6}',
    b'{"scale":6,"zero_count":7,"positive":[{"offset":70000,"counts":""}]}',
]


LOWERED = {"m.sum": -1.0, "m.p50": -2.0, "m.p75": 1.0}


def test_a_count_of_a_single_instance_is_no_cumulative_stream() -> None:
    """It restarts with the instance, whose lives share a series. So each field is a gauge, without the life's ID."""
    tags = {"app": "a", "metric_type": "counter", "instance": "i"}
    found = metrics(Point("instance:m", tags, {"count": 7, "life": "L"}, NOW_MS))
    assert found.keys() == {"instance:m.count"}
    assert found["instance:m.count"]["gauge"]["dataPoints"][0]["asInt"] == "7"


def test_each_number_of_another_point_is_a_gauge() -> None:
    """True is 1. Without an app, the resource has no name."""
    (resource,) = decoded(Point("m", {}, {"up": True, "text": "x"}, NOW_MS))
    assert "resource" not in resource or resource["resource"] == {}
    (metric,) = resource["scopeMetrics"][0]["metrics"]
    assert (metric["name"], metric["gauge"]["dataPoints"][0]["asInt"]) == ("m.up", "1")


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (Point("m", {}, {"count": 2**63}, NOW_MS), [2**63]),
        (sum_point("counter", 1, 0), "the time 0"),
        (sum_point("counter", 1, -1), "the time -1"),
        (sum_point("counter", 1, 18_446_744_073_709), "the time 18446744073709"),
        (sum_point("counter", 1, 18_446_744_073_708), None),
        (sum_point("histogram", -1, NOW_MS), "the count -1"),
        (Point("m", {}, {"text": "x"}, NOW_MS), "it has no number"),
    ],
)
def test_a_point_that_no_receiver_can_accept_is_rejected_with_a_reason(one: Point, reason: object) -> None:
    """It has a number above 64 bits, a time that OTLP can't represent, a negative count of values, or no number.

    Nanoseconds are unsigned with 64 bits, so the last millisecond is in the year 2554.
    """
    assert unfit(one) == reason
    assert reason is not None or encode([one])
