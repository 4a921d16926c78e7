"""The points of records, and records that can't be decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.malformed import UNDECODABLE
from support.steps import FIRST, Topic, counter, gauge
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import EVENTS, PointMapper, event_point, is_sum
from tallystream_aggregator.shipping.tail import Record
from tallystream_aggregator.table.records.outputs import Event

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.base import Point

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
    assert not is_sum(EVENTS)
    assert not is_sum("instance:flights.processed")
