"""What became of the records of each consumer, as the points that the lag collector writes."""

from __future__ import annotations

import pytest

from support.lag import Rounds, group, round_of
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.data.consumers import read_record_points

NOW = 1_700_000_000_000


def progress(app: str, name: str, count: int, offsets: tuple[int, int], topic: str = "in") -> list[Point]:
    """Return the points of a counter and of its position."""
    own, where = {"app": app, "metric_type": "counter"}, {"topic": topic, "partition": "0"}
    position = own | where | {"metric_type": "position"}
    return [
        Point(name, own, {"count": count}, NOW - 60_000),
        Point(f"{name}.position", position, {"start": offsets[0], "position": offsets[1]}, NOW - 60_000),
    ]


def round_points(shipped: int = 9, ago_ms: int = 2_000) -> list[Point]:
    """Return the points of a round of the collector, in which the shipper had committed so much of 9 rows."""
    aggregator = group("tallystream-aggregator", (9, 9), topic="metrics")
    shipper = group("tallystream-shipper", (shipped, 9), topic="metrics-agg")
    return Rounds().points(round_of(aggregator, shipper), NOW - ago_ms)


def test_each_consumer_has_a_point_with_the_numbers_that_are_known(store: LocalStore, reader: LocalStore) -> None:
    """What was lost and is in flight is known if it is known who sent it. A consumer of which nothing is has no point.

    The numbers are the lower bounds of `compare`, and the upper one of what was processed twice.
    """
    store.write(round_points())
    store.write(progress("orders", "sent", 1000, (0, 1000)))
    store.write([*progress("billing", "n", 900, (90, 990)), *progress("billing", "n.taken", 925, (90, 990))])
    store.write(progress("audit", "n", 1003, (0, 1000), "other"))
    store.write(progress("idle", "n", 7, (0, 9), "third"))
    assert read_record_points(reader, NOW) == [
        Point("tallystream.records", {"app": "audit", "metric": "n"}, {"counted_twice": 3}, NOW),
        Point(
            "tallystream.records",
            {"app": "billing", "metric": "n"},
            {"lost": 90, "in_flight": 10, "counted_twice": 0, "processed_twice_at_most": 25},
            NOW,
        ),
    ]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([], id="no round"),
        pytest.param(round_points(ago_ms=100_000), id="no round for too long"),
        pytest.param([*round_points(ago_ms=200_000), *round_points(shipped=5)], id="a late shipper"),
    ],
)
def test_while_the_store_may_be_late_there_are_no_points(
    store: LocalStore, reader: LocalStore, points: list[Point]
) -> None:
    """Counts may be in the store without their positions."""
    store.write([*progress("audit", "n", 1003, (0, 1000)), *points])
    assert read_record_points(reader, NOW) == []
