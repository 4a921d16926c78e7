"""Batches of all shipped topics to points: order, fences, and what can't be read."""

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
    rows = [(row.key, row.value(epoch=epoch, batch=0)) for row in topic.changes.rows]
    return [Shipped(TOPICS.table, offset + at, key, value) for at, (key, value) in enumerate(rows)]


def counts(points: list[Point]) -> list[object]:
    """Return measurement and count of each point."""
    return [(one.measurement, one.fields.get("count")) for one in points]


def test_each_topic_has_its_points_in_the_order_of_its_offsets(tmp_path: Path) -> None:
    """However Spark hands the records over."""
    event = Event("restart", "a", "i", FIRST, 5, ("metrics", 0, 17)).value()
    records = [
        *published(Topic().snapshot(counter(4)), 30, epoch=1),
        Shipped(TOPICS.agg, 11, b"k", a_sum(2)),
        Shipped(TOPICS.events, 3, b"k", event),
        Shipped(TOPICS.agg, 10, b"k", a_sum(1)),
    ]
    made = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None)).points(records)
    assert counts(made) == [("n", 1), ("n", 2), (EVENTS, None), ("instance:n", 4)]


def test_the_rows_of_each_partition_are_judged_by_its_own_offsets(tmp_path: Path) -> None:
    """A partition that is read later, from lower offsets, has its writers in its own order, across a restart, too."""
    new = published(Topic().snapshot(counter(4)), 50, epoch=2)
    other = published(Topic().snapshot(counter(5)), 0, epoch=1)
    stale = published(Topic().snapshot(counter(6)), 60, epoch=1)
    translator = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    made = translator.points([*new, *(record._replace(partition=1) for record in other)])
    assert counts(made) == [("instance:n", 4), ("instance:n", 5)]
    assert PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None)).points(stale) == []


def test_a_replaced_writer_is_left_out_of_sums_and_rows_each_by_its_own_topic(tmp_path: Path) -> None:
    """An old writer's rows after the new one's are dropped and counted, across a restart; events pass."""
    topic = Topic().snapshot(counter(4))
    new = published(topic, 0, epoch=2)
    old = published(topic.snapshot(counter(5), seq=2), 10, epoch=1)
    translator = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    assert counts(translator.points([*new, Shipped(TOPICS.agg, 0, b"k", a_sum(1))])) == [("n", 1), ("instance:n", 4)]
    again = PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None))
    assert counts(again.points([*old, Shipped(TOPICS.agg, 1, b"k", a_sum(2))])) == [("n", 2)]
    assert again.dropped == len(old)


def test_a_shard_that_has_a_new_writer_is_enough_to_shut_the_old_one_out(tmp_path: Path) -> None:
    """The new one may have had no life to write of yet."""
    topic = Topic().snapshot(counter(4))
    old = published(topic, 10, epoch=1)
    new = [one for one in published(topic, 0, epoch=2) if (one.key or b"").startswith(b'["shard"')]
    assert PointMapper(TOPICS, tmp_path / "c", Epochs(lambda: None)).points([*new, *old]) == []


def test_what_is_not_the_topics_is_passed_over_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A deletion on metrics-table is nothing to speak of; everything else is counted, with its topic and offset."""
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
def test_no_value_stops_the_shipper(tmp_path: Path, value: bytes) -> None:
    """One that can't be decoded is passed over on each topic, and the sum after it is shipped."""
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


def test_an_epoch_that_no_aggregator_has_taken_is_left_out_of_sums_and_rows(tmp_path: Path) -> None:
    """Neither a sum nor a row of 2^62 keeps the true writer's from the store."""
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
def test_an_event_is_a_point_and_the_same_one_again(event: Event, text: str) -> None:
    """Kind, app, instance and detail are tags, the words a field; what a repeated batch wrote overwrites itself."""
    made = event_point(event.value())
    assert made == event_point(event.value())
    assert (made.measurement, made.ts_ms, made.fields["text"]) == (EVENTS, 5, text)
    tags = {"kind": event.kind, "app": event.app, "instance": event.instance, "detail": event.detail}
    assert made.tags == {name: value for name, value in tags.items() if value}
    assert made.fields.get("offset") == (event.offset[2] if event.offset else None)
    assert made.fields.get("life") == (event.life or None)


def test_two_limits_at_once_are_two_points() -> None:
    """Of one instance, at one time."""
    one, other = (event_point(Event("limit", "a", "i", FIRST, BEGIN_MS, None, name).value()) for name in ("x", "y"))
    assert (one.tags, one.ts_ms) != (other.tags, other.ts_ms)


def test_what_is_no_sum_is_told_by_its_measurement() -> None:
    """A reader of sums leaves the rest out."""
    assert is_sum("flights.processed")
    assert not is_sum(EVENTS)
    assert not is_sum("instance:flights.processed")
