"""The points of batches: their order, the fences, and records that can't be decoded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from support.topic import BEGIN_MS, FIRST, Topic, counter
from support.undecodable import UNDECODABLE
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.ledger import Epochs
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import EVENTS, PointMapper, Shipped, event_point, is_sum
from tallystream_aggregator.table.outputs import Event

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Point

TOPICS = Topics("t-")


def a_sum(count: int, *, epoch: int = 1) -> bytes:
    """Return a row of metrics-agg."""
    return sums.encode(sums.Sum(app="a", name="n", type="counter", count=count, ts=count, epoch=epoch))


def published(topic: Topic, offset: int, *, epoch: int) -> list[Shipped]:
    """Return the records that the last batch wrote to metrics-table, from this offset on."""
    rows = [(row.key, row.value()) for row in topic.changes.rows]
    return [Shipped(TOPICS.table, offset + at, key, value) for at, (key, value) in enumerate(rows)]


def counts(points: list[Point]) -> list[object]:
    """Return measurement and count of each point."""
    return [(one.measurement, one.fields.get("count")) for one in points]


def test_points_are_in_the_order_of_offsets(tmp_path: Path) -> None:
    """Spark may return records in another order."""
    event = Event("restart", "a", "i", FIRST, 5, ("metrics", 0, 17)).value()
    records = [
        *published(Topic().snapshot(counter(4)), 30, epoch=1),
        Shipped(TOPICS.agg, 11, b"k", a_sum(2)),
        Shipped(TOPICS.events, 3, b"k", event),
        Shipped(TOPICS.agg, 10, b"k", a_sum(1)),
    ]
    made = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None)).points(records)
    assert counts(made) == [("n", 1), ("n", 2), (EVENTS, None), ("instance:n", 4)]


def test_each_partition_has_its_own_fence(tmp_path: Path) -> None:
    """A partition may be read later, from lower offsets, also after a restart."""
    new = published(Topic().snapshot(counter(4)), 50, epoch=2)
    other = published(Topic().snapshot(counter(5)), 0, epoch=1)
    stale = published(Topic().snapshot(counter(6)), 60, epoch=1)
    translator = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    made = translator.points([*new, *(record._replace(partition=1) for record in other)])
    assert counts(made) == [("instance:n", 4), ("instance:n", 5)]
    assert PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None)).points(stale) == []


def test_rows_of_a_replaced_writer_are_dropped(tmp_path: Path) -> None:
    """Sums and rows of lives each have a fence, also after a restart. Events have none."""
    topic = Topic().snapshot(counter(4))
    new = published(topic, 0, epoch=2)
    old = published(topic.snapshot(counter(5), seq=2), 10, epoch=1)
    translator = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    assert counts(translator.points([*new, Shipped(TOPICS.agg, 0, b"k", a_sum(1))])) == [("n", 1), ("instance:n", 4)]
    again = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    assert counts(again.points([*old, Shipped(TOPICS.agg, 1, b"k", a_sum(2))])) == [("n", 2)]
    assert again.dropped == len(old)


def test_the_record_of_a_shard_raises_the_fence(tmp_path: Path) -> None:
    """The new writer may have written no life yet."""
    topic = Topic().snapshot(counter(4))
    old = published(topic, 10, epoch=1)
    new = [one for one in published(topic, 0, epoch=2) if (one.key or b"").startswith(b'["shard"')]
    assert PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None)).points([*new, *old]) == []


def test_records_of_another_kind_are_counted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A deletion on `metrics-table` is ignored."""
    translator = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    with caplog.at_level(logging.WARNING):
        made = translator.points(
            [
                Shipped(TOPICS.agg, 0, b"k", None),
                Shipped(TOPICS.events, 1, b"k", b'{"kind":1}'),
                Shipped(TOPICS.table, 2, b'["life","a","i","l",0]', b"{"),
                Shipped(TOPICS.table, 3, b'["life","a","i","l",0]', None),
                Shipped(TOPICS.agg, 4, b"k", a_sum(1)),
            ]
        )
    assert counts(made) == [("n", 1)]
    assert translator.unreadable == 3
    assert "t-metrics-agg, offset 0 is not a sum and is not shipped" in caplog.text
    assert "t-metrics-events, offset 1 is not an event" in caplog.text
    assert "t-metrics-table, offset 2 is not a row" in caplog.text


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
def test_an_undecodable_value_does_not_stop_the_shipper(tmp_path: Path, value: bytes) -> None:
    """It is skipped on each topic, and the sum after it is shipped."""
    translator = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    made = translator.points(
        [
            Shipped(TOPICS.agg, 0, b"k", value),
            Shipped(TOPICS.events, 1, b"k", value),
            Shipped(TOPICS.table, 2, b'["life","a","i","l",0]', value),
            Shipped(TOPICS.table, 3, b'["shard",0]', value),
            Shipped(TOPICS.agg, 4, b"k", a_sum(1)),
        ]
    )
    assert counts(made) == [("n", 1)]
    assert translator.unreadable == 4


@pytest.mark.parametrize("field", ["value", "sum", "m15_rate"])
def test_a_row_with_a_number_beyond_floats_does_not_stop_the_shipper(tmp_path: Path, field: str) -> None:
    """JSON has integers of any length. Such a row is not one of a table."""
    (row,) = (one for one in published(Topic().snapshot(counter(4)), 0, epoch=1) if (one.key or b"")[:7] == b'["life"')
    foreign = (row.value or b"").replace(b'"count":4', b'"count":4,"%s":1%s' % (field.encode(), b"0" * 400))
    translator = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    assert counts(translator.points([row._replace(value=foreign), row._replace(offset=1)])) == [("instance:n", 4)]
    assert translator.unreadable == 1


def test_sums_and_rows_with_an_unknown_epoch_are_dropped(tmp_path: Path) -> None:
    """The rows of the active writer after them are shipped."""
    topic = Topic().snapshot(counter(4))
    translator = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: 1))
    made = translator.points(
        [
            Shipped(TOPICS.agg, 0, b"k", a_sum(9, epoch=2**62)),
            Shipped(TOPICS.agg, 1, b"k", a_sum(1)),
            *published(topic, 0, epoch=2**62),
            *published(topic, 10, epoch=1),
        ]
    )
    assert counts(made) == [("n", 1), ("instance:n", 4)]
    assert translator.dropped == 1 + len(topic.changes.rows)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event("restart", "a", "i", FIRST, 5, ("metrics", 0, 17)), "restart: i"),
        (Event("overflow", "a", "", "", 5, detail="n"), "overflow: a, n"),
        (Event("limit", "", "i", "", 5, ("metrics", 0, 17), "record size"), "limit: i, record size"),
    ],
)
def test_the_same_event_is_the_same_point(event: Event, text: str) -> None:
    """Kind, app, instance and detail are tags, and the text is a field."""
    made = event_point(event.value())
    assert made == event_point(event.value())
    assert (made.measurement, made.ts_ms, made.fields["text"]) == (EVENTS, 5, text)
    tags = {"kind": event.kind, "app": event.app, "instance": event.instance, "detail": event.detail}
    assert made.tags == {name: value for name, value in tags.items() if value}
    assert made.fields.get("offset") == (event.offset[2] if event.offset else None)
    assert made.fields.get("life") == (event.life or None)


def test_two_events_at_one_time_are_two_points() -> None:
    """One instance has reached two limits."""
    one, other = (event_point(Event("limit", "a", "i", FIRST, BEGIN_MS, None, name).value()) for name in ("x", "y"))
    assert (one.tags, one.ts_ms) != (other.tags, other.ts_ms)


def test_the_measurement_tells_whether_it_has_sums() -> None:
    """A reader of sums ignores the others."""
    assert is_sum("flights.processed")
    assert not is_sum(EVENTS)
    assert not is_sum("instance:flights.processed")
