"""The points of single instances, and that they never share a series with a sum."""

from __future__ import annotations

import msgspec
import pytest

from support.topic import BEGIN_MS, FIRST, SECOND, Topic, counter, gauge
from tallystream.metric_types import NAMES, WHOLE
from tallystream.record import CLASSES
from tallystream_aggregator.shipping.points import point, row_points
from tallystream_aggregator.sinks.base import INSTANCE_PREFIX
from tallystream_aggregator.sums import Sum
from tallystream_aggregator.table.rows import LifeRow


def rows(topic: Topic) -> list[LifeRow]:
    """Return the lives' rows that the last batch published, as they are read from their topic."""
    values = (one.value() for one in topic.changes.rows if isinstance(one.row, LifeRow))
    return [msgspec.json.decode(value, type=LifeRow) for value in values if value is not None]


def test_each_metric_of_the_newest_snapshot_is_a_point() -> None:
    """Its measurement has the prefix, and the instance is a tag. The life is a field."""
    (row,) = rows(Topic().snapshot(counter(5, tags={"topic": "x"}), gauge(2), at=7000))
    first, second = row_points(row)
    assert (first.measurement, first.ts_ms) == (INSTANCE_PREFIX + "n", BEGIN_MS + 7000)
    assert first.tags == {"topic": "x", "app": "shop", "metric_type": "counter", "instance": "app-1"}
    assert first.fields == {"count": 5, "life": FIRST}
    assert (second.measurement, second.fields) == (INSTANCE_PREFIX + "g", {"value": 2.0, "life": FIRST})
    assert isinstance(second.fields["value"], float)


def test_a_metric_of_an_older_snapshot_makes_no_point() -> None:
    """It has a point with the time of its own snapshot."""
    (row,) = rows(Topic().snapshot(counter(5), gauge(2)).snapshot(counter(6), seq=2))
    assert [(one.measurement, one.fields["count"]) for one in row_points(row)] == [(INSTANCE_PREFIX + "n", 6)]


def test_a_restart_continues_the_series() -> None:
    """The field `life` changes."""
    topic = Topic().snapshot(counter(5))
    (before,) = [one for row in rows(topic) for one in row_points(row)]
    (after,) = [one for row in rows(topic.snapshot(counter(1), life=SECOND, at=1000)) for one in row_points(row)]
    assert (before.measurement, before.tags) == (after.measurement, after.tags)
    assert (after.fields, after.ts_ms) == ({"count": 1, "life": SECOND}, BEGIN_MS + 1000)


def test_a_tombstone_makes_no_point() -> None:
    """The life has no metrics then."""
    (row,) = rows(Topic().snapshot(counter(5)).append(b"app-1", None))
    assert list(row_points(row)) == []


def test_the_short_form_is_a_point_without_a_life() -> None:
    """Its count is the sum of all its runs."""
    (row,) = rows(Topic().short(5).short(2))
    (made,) = row_points(row)
    assert (made.tags["instance"], made.fields) == ("script", {"count": 7})


@pytest.mark.parametrize("kind", sorted(NAMES.keys() - {"buckets"}))
def test_every_value_of_a_row_is_a_field(kind: str) -> None:
    """A field always has the same type."""
    values = dict.fromkeys(NAMES[kind], 3)
    metric = CLASSES[kind](name="n", **values)  # type: ignore[arg-type]  # by type
    row = LifeRow(
        *(), app="a", instance="i", life=FIRST, part=0, topic="metrics", partition=0, offset=0, last_seen_ms=1,
        every_ms=1, keep_ms=1, metrics=[metric],
    )  # fmt: skip
    (made,) = row_points(row)
    assert made.fields == values | {"life": FIRST}
    for name in values:
        assert isinstance(made.fields[name], int if name in WHOLE else float)


def test_a_tag_named_instance_gets_a_prefix() -> None:
    """So do `app` and `metric_type`."""
    (row,) = rows(Topic().snapshot(counter(5, tags={"instance": "mine", "app": "other"})))
    (made,) = row_points(row)
    assert made.tags == {
        "tag_instance": "mine", "tag_app": "other", "app": "shop", "metric_type": "counter", "instance": "app-1",
    }  # fmt: skip
    summed = point(Sum(app="shop", name="n", type="counter", tags={"instance": "mine"}, count=5, ts=0))
    assert summed.tags["instance"] == "mine"
    assert summed.measurement != made.measurement
