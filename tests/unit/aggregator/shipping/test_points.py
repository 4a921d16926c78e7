"""From a record to its points: sums, rows of lives, events, and points that a store rejects."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.levels import VALUES
from support.malformed import UNDECODABLE
from support.steps import BEGIN_MS, FIRST, Topic, counter, gauge
from tallystream.metric_types import NAMES, WHOLE
from tallystream.record import CLASSES
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.dead_letters import MAX_POINT_CHARS, dead_letter
from tallystream_aggregator.shipping.points import ALWAYS, PointMapper, event_point, point, row_points
from tallystream_aggregator.shipping.tail import Record
from tallystream_aggregator.sinks.base import EVENTS, INSTANCE_PREFIX, LAG_MEASUREMENTS, Point, is_sum
from tallystream_aggregator.sums import Sum
from tallystream_aggregator.table.records.outputs import Event
from tallystream_aggregator.table.rows import LifeRow
from tallystream_aggregator.verify.published import refused_record


@pytest.mark.parametrize("kind", sorted(VALUES.keys() - {"buckets"}))
def test_every_type_of_metric_has_its_fields(kind: str) -> None:
    """These are the fields that are set, and those of every sum. App and type are tags.

    A field never changes its type: counts are integers and all others floats.
    """
    values = dict.fromkeys(VALUES[kind], 3)
    row = Sum(app="orders", name="n", type=kind, tags={"topic": "x"}, lives=2, instances=1, retired=3, ts=5)
    made = point(replace(row, overflow=True, **values))
    assert (made.measurement, made.ts_ms) == ("n", 5)
    assert made.tags == {"topic": "x", "app": "orders", "metric_type": kind}
    assert made.fields == {**values, "lives": 2, "instances": 1, "retired": 3, "overflow": True}
    for name in made.fields.keys() - {"overflow"}:
        assert type(made.fields[name]) is (int if name in {*WHOLE, *ALWAYS} else float), name


def test_every_number_of_a_sum_is_a_field() -> None:
    """Those of its origin are not. The sketch is beside the fields, and each explicit bucket has a field."""
    only_if_true = {"overflow"}
    origin = {"v", "app", "name", "type", "tags", "ts", "offsets", "sketch", "bounds", "counts"}
    assert {*sums.VALUES, *ALWAYS} == set(Sum.__struct_fields__) - origin - only_if_true


def test_explicit_buckets_have_a_field_for_each_bound() -> None:
    """It has the values up to there. The point has the suffix `.bucket`, so it is not beside that of the histogram."""
    row = Sum(app="a", name="t", type="buckets", count=6, bounds=[0.5, 1.0], counts=[1, 2, 3], lives=1, ts=5)
    made = point(row)
    assert (made.measurement, made.tags) == ("t.bucket", {"app": "a", "metric_type": "buckets"})
    assert made.fields == {"count": 6, "0.5": 1, "1.0": 3, "lives": 1, "instances": 0, "retired": 0}
    assert list(made.fields)[-2:] == ["0.5", "1.0"]


_tags = st.dictionaries(
    st.sampled_from(["app", "tag_app", "tag_tag_app", "metric_type", "tag_metric_type", "tag_", "x"]) | st.text(),
    st.sampled_from(["counter", "meter", "", "a"]),
    max_size=3,
)
_sums = st.builds(
    lambda app, type_, tags: Sum(app=app, name="n", type=type_, tags=tags, count=1, ts=0),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["counter", "meter"]),
    _tags,
)


@given(_sums, _sums)
def test_two_sums_never_share_a_series(one: Sum, other: Sum) -> None:
    """Points have the same tags only if the app, the type and the tags of their sums are the same."""
    same = (one.app, one.type, one.tags) == (other.app, other.type, other.tags)
    assert (point(one).tags == point(other).tags) == same


def rows(topic: Topic) -> list[LifeRow]:
    """Return the lives' rows that the last batch published, as they are read from their topic."""
    values = (one.value() for one in topic.changes.rows if isinstance(one.row, LifeRow))
    return [msgspec.json.decode(value, type=LifeRow) for value in values if value is not None]


def test_each_metric_of_the_newest_snapshot_is_a_point() -> None:
    """Its measurement has the prefix, and the instance is a tag. The life is a field, which a restart changes."""
    (row,) = rows(Topic().snapshot(counter(5, tags={"topic": "x"}), gauge(2), at=7000))
    first, second = row_points(row)
    assert (first.measurement, first.ts_ms) == (INSTANCE_PREFIX + "n", BEGIN_MS + 7000)
    assert first.tags == {"topic": "x", "app": "shop", "metric_type": "counter", "instance": "app-1"}
    assert first.fields == {"count": 5, "life": FIRST}
    assert (second.measurement, second.fields) == (INSTANCE_PREFIX + "g", {"value": 2.0, "life": FIRST})
    assert isinstance(second.fields["value"], float)


def test_a_metric_of_an_older_snapshot_makes_no_point() -> None:
    """It has a point with the time of its own snapshot. After a tombstone the life has no metrics."""
    topic = Topic().snapshot(counter(5), gauge(2)).snapshot(counter(6), seq=2)
    (row,) = rows(topic)
    assert [(one.measurement, one.fields["count"]) for one in row_points(row)] == [(INSTANCE_PREFIX + "n", 6)]
    (row,) = rows(topic.append(b"app-1", None))
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


TOPICS = Topics("t-")


def a_sum(count: int) -> bytes:
    """Return a row of metrics-agg."""
    return sums.Sum(app="a", name="n", type="counter", count=count, ts=count).value()


def published(topic: Topic, offset: int) -> list[Record]:
    """Return the records that the last step wrote to metrics-table, from this offset on."""
    rows = [(row.key, row.value()) for row in topic.changes.rows]
    return [Record(TOPICS.table, offset + at, key, value) for at, (key, value) in enumerate(rows)]


def counts(points: list[Point]) -> list[object]:
    """Return measurement and count of each point."""
    return [(one.measurement, one.fields.get("count")) for one in points]


def test_sums_events_and_lives_are_points_in_the_order_of_reading() -> None:
    """The positions of a shard, and the sums of forgotten lives, are none."""
    event = Event("restart", "a", "i", FIRST, 5, "metrics", 0, 17).value()
    records = [
        Record(TOPICS.agg, 10, b"k", a_sum(1)),
        *published(Topic().snapshot(counter(4)), 30),
        Record(TOPICS.table, 40, b'["positions",0]', b"{}"),
        Record(TOPICS.table, 41, b'["forgotten",0,"a","counter","n",[]]', b'{"v":1,"lives":1}'),
        Record(TOPICS.events, 3, b"k", event),
        Record(TOPICS.agg, 11, b"k", a_sum(2)),
    ]
    mapper = PointMapper(TOPICS)
    assert counts(mapper.points(records)) == [("n", 1), ("instance:n", 4), (EVENTS, None), ("n", 2)]
    assert mapper.unreadable == 0


def test_the_newest_readable_record_of_each_key_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """A store of only the newest sums needs no others. A record that can't be decoded hides no sum."""
    rows = [(b"a", a_sum(1)), (b"b", a_sum(2)), (b"a", a_sum(3)), (b"b", b"{"), (b"c", a_sum(4)), (b"c", None)]
    mapper = PointMapper(TOPICS)
    points = mapper.newest([Record(TOPICS.agg, at, key, value) for at, (key, value) in enumerate(rows)])
    assert sorted(one.fields["count"] for one in points) == [2, 3]
    assert (mapper.unreadable, "offset 3 can't be read" in caplog.text) == (1, True)


@pytest.mark.parametrize("value", [*UNDECODABLE.values(), b"{}"], ids=[*UNDECODABLE, "without fields"])
def test_an_undecodable_value_does_not_stop_the_shipper(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """On each topic it is counted, logged and skipped, and the sum after it is shipped. A deletion is ignored."""
    mapper = PointMapper(TOPICS)
    made = mapper.points(
        [
            Record(TOPICS.agg, 0, b"k", value),
            Record(TOPICS.events, 1, b"k", value),
            Record(TOPICS.table, 2, b'["life","a","i","l",0]', value),
            Record(TOPICS.table, 3, b'["life","a","i","l",0]', None),
            Record(TOPICS.agg, 4, b"k", None),
            Record(TOPICS.agg, 5, b"k", a_sum(1)),
        ]
    )
    assert counts(made) == [("n", 1)]
    assert mapper.unreadable == 3
    for at, topic in enumerate((TOPICS.agg, TOPICS.events, TOPICS.table)):
        assert f"{topic}, offset {at} can't be read and is not shipped" in caplog.text


def test_a_row_with_a_number_beyond_floats_does_not_stop_the_shipper() -> None:
    """JSON has integers of any length. Such a row is not one of a table."""
    (row,) = (one for one in published(Topic().snapshot(gauge(4)), 0) if (one.key or b"")[:7] == b'["life"')
    foreign = (row.value or b"").replace(b'"value":4', b'"value":1%s' % (b"0" * 400))
    mapper = PointMapper(TOPICS)
    assert len(mapper.points([row._replace(value=foreign), row._replace(offset=1)])) == 1
    assert mapper.unreadable == 1


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event("restart", "a", "i", FIRST, 5, "metrics", 0, 17), "restart: i"),
        (Event("forget", "a", "", "", 5, "metrics", 0, 17, "n"), "forget: a, n"),
        (Event("limit", "", "i", "", 5, "metrics", 0, 17, "record size"), "limit: i, record size"),
    ],
)
def test_the_same_event_is_the_same_point(event: Event, text: str) -> None:
    """Kind, app, instance and detail are tags: two limits that are reached at once are two points."""
    made = event_point(event.value())
    assert made == event_point(event.value())
    assert (made.measurement, made.ts_ms, made.fields["text"]) == (EVENTS, 5, text)
    tags = {"kind": event.kind, "app": event.app, "instance": event.instance, "detail": event.detail}
    assert made.tags == {name: value for name, value in tags.items() if value}
    assert made.fields["offset"] == 17
    assert made.fields.get("life") == (event.life or None)


def test_the_measurement_tells_whether_it_has_sums() -> None:
    """A reader of sums ignores the others."""
    assert is_sum("flights.processed")
    assert not any(map(is_sum, (EVENTS, "instance:flights.processed", *LAG_MEASUREMENTS)))


def test_a_dead_letter_has_the_point_the_reason_and_the_store() -> None:
    """The point is a text, because JSON has no NaN."""
    point = Point("heat", {"app": "ä"}, {"sum": math.nan, "count": 2**63}, 5)
    key, value = dead_letter(point, "no good", "influxdb:http://h")
    assert key == b"heat"
    assert json.loads(value) == {
        "v": 1,
        "reason": "no good",
        "ts": 5,
        "store": "influxdb:http://h",
        "point": '{"measurement": "heat", "tags": {"app": "ä"}, "fields": {"sum": NaN, "count": 9223372036854775808}}',
    }


def test_verify_ignores_the_dead_letter_of_a_point() -> None:
    """The table accepted its record."""
    _, value = dead_letter(Point("m", {}, {"v": 1}, 5), "r", "s")
    assert refused_record(value) is None


def test_a_dead_letter_has_a_limited_size() -> None:
    """The measurement, the point and the reason are truncated."""
    key, value = dead_letter(Point("m" * 10_000, {"k": "v" * 200_000}, {"v": 1}, 5), "r" * 10_000, "s")
    assert len(key) == 1024
    assert len(json.loads(value)["point"]) == MAX_POINT_CHARS
    assert len(json.loads(value)["reason"]) == 1000
