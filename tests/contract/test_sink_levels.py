"""The contract of every sink at its level (every point, or the latest), with four real stores.

Further tests of stores that can be read are in test_sinks.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.collector import Collector
from support.hostile_text import HOSTILE
from support.levels import (
    BAD,
    VALUES,
    Collected,
    Readable,
    Scraped,
    Target,
    promised,
    require,
    sum_point,
)
from support.stores import NOW_MS, influx_bucket
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Sink
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_aggregator.sums import Sum


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory, collector_binary: Path) -> Iterator[Collector]:
    """One OpenTelemetry Collector for all tests."""
    with Collector(tmp_path_factory.mktemp("otelcol"), collector_binary) as running:
        yield running


@pytest.fixture(
    params=[
        "local",
        "prometheus",
        *(pytest.param(server, marks=pytest.mark.integration) for server in ("influxdb", "otlp")),
    ]
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """An empty store."""
    own = f"t{uuid.uuid4().hex}"
    if request.param == "local":
        yield Readable(StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={}))
    elif request.param == "prometheus":
        yield Scraped()
    elif request.param == "otlp":
        collector = request.getfixturevalue("collector")
        collector.destination.received.clear()
        yield Collected(collector)
    else:
        with influx_bucket(request.getfixturevalue("influxdb"), own) as settings:
            yield Readable(settings)


@pytest.fixture
def sink(target: Target) -> Iterator[Sink]:
    """A sink of the target that is set up."""
    opened = target.open()
    opened.setup()
    yield opened
    opened.close()
    opened.close()


def test_every_type_of_metric_is_stored_at_the_sinks_level(target: Target, sink: Sink) -> None:
    """The fields of every point are stored, or of the newest point."""
    points = [
        sum_point(kind, n, NOW_MS + n * 300, f"of.{kind}", {"topic": "a b"}) for kind in VALUES for n in range(1, 12)
    ]
    most = Sum(app="orders", name="of.all", type="counter", count=2**53, overflow=True, ts=NOW_MS)
    points.append(point(most))
    assert sink.write(points[:40]) == sink.write(points[40:]) == []
    require(target, sink, points)


def test_a_repeated_write_changes_nothing(target: Target, sink: Sink) -> None:
    """Writing all or some points again, by this or another sink, makes no difference."""
    points = [sum_point("counter", n, NOW_MS + n * 100, tags={"of": str(n % 3)}) for n in range(60)]
    sink.write(points)
    for again in (points, points[20:40] + points[30:], points):
        sink.write(again)
    if target.level != "latest":
        other = target.open()
        other.setup()
        other.write(points)
        other.close()
    require(target, sink, points)


def test_the_later_of_two_points_with_one_time_is_stored(target: Target, sink: Sink) -> None:
    """This holds for two points in one write and for points in two writes."""
    points = [sum_point("counter", n, NOW_MS) for n in (5, 6, 7)]
    sink.write(points[:2])
    sink.write(points[2:])
    require(target, sink, points)
    ((_, kept),) = promised(target.level, points).items()
    assert [fields["count"] for fields in kept.values()] == [7]


@pytest.mark.parametrize("where", ["name", "tag key", "tag value"])
def test_any_text_is_its_own_series(target: Target, sink: Sink, where: str) -> None:
    """Each text adds exactly one series with one point, and differs from every other text."""
    points = []
    for n, text in enumerate(HOSTILE):
        name, tags = "n", {"other": "x"}
        if where == "name":
            name = text
        else:
            tags |= {text: "v"} if where == "tag key" else {"k": text}
        points.append(sum_point("counter", n, NOW_MS, name, tags))
    assert sink.write(points) == []
    require(target, sink, points)


def test_a_rejected_point_does_not_block_others(target: Target, sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and returned with the reason. The others are written."""
    points = [sum_point("counter", n, NOW_MS + n * 1000) for n in range(30)]
    with caplog.at_level("WARNING"):
        rejected = sink.write([*points[:10], *BAD, *points[10:]])
    assert [point for point, _ in rejected] == BAD
    assert all("rejects a point of 'bad' permanently: " in reason for _, reason in rejected)
    assert caplog.text.count("rejects a point of 'bad' permanently") == len(BAD)
    require(target, sink, points)


def test_an_empty_write_is_allowed(target: Target, sink: Sink) -> None:
    """Of the first points, and later."""
    sink.write([])
    sink.setup()
    require(target, sink, [])
