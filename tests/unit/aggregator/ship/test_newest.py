"""The newest sums of a topic that is read from its beginning, and when they can't be taken for the newest any more."""

from __future__ import annotations

from tallystream.aggregator import sums
from tallystream.aggregator.reading import Read
from tallystream.aggregator.ship.newest import Freshness, Newest


def record(offset: int, name: str, count: int, *, epoch: int = 1) -> Read:
    """A row of `metrics-agg`."""
    row = sums.Sum(app="orders", name=name, type="counter", count=count, ts=offset, epoch=epoch)
    return Read(name.encode(), sums.encode(row), offset)


def test_of_each_key_the_last_row_is_a_point() -> None:
    """Of a chunk, in the order of offsets; the next chunk has its own."""
    newest = Newest()
    points = newest.points([record(0, "a", 1), record(1, "b", 5), record(2, "a", 2)])
    assert {point.measurement: point.fields["count"] for point in points} == {"a": 2, "b": 5}
    assert [point.fields["count"] for point in newest.points([record(3, "a", 3)])] == [3]


def test_a_replaced_writer_is_left_out_for_good() -> None:
    """A row of a lower epoch than one before it, in this chunk or an earlier one, of any key."""
    newest = Newest()
    points = newest.points([record(0, "a", 1), record(1, "b", 5, epoch=2), record(2, "a", 99)])
    assert {point.measurement: point.fields["count"] for point in points} == {"a": 1, "b": 5}
    assert newest.points([record(3, "c", 99)]) == []
    assert newest.dropped == 2


def test_what_is_no_sum_is_counted_and_passed_over() -> None:
    """Neither an empty value nor half a JSON stops the others."""
    newest = Newest()
    points = newest.points([Read(b"k", None, 0), Read(b"k", b"{", 1), record(2, "a", 7)])
    assert [point.fields["count"] for point in points] == [7]
    assert newest.unreadable == 2


def test_nothing_is_the_newest_before_an_end_was_reached() -> None:
    """An end that was asked for has to be read; later ones that are not yet do not matter."""
    freshness = Freshness(30)
    assert freshness.stale(0) == "the newest sums are not known yet"
    freshness.ended(0, 100)
    freshness.reached(99)
    assert freshness.stale(1) == "the newest sums are not known yet"
    freshness.ended(2, 200)
    freshness.reached(100)
    assert freshness.stale(3) is None


def test_it_grows_stale_when_the_end_is_not_reached_again() -> None:
    """As of when it was the newest counts, not when it was read: the broker away, or more coming than is read."""
    freshness = Freshness(30)
    freshness.ended(0, 10)
    freshness.reached(10)
    freshness.ended(20, 500)
    freshness.reached(499)
    assert freshness.stale(30) is None
    assert freshness.stale(31) == "the newest sums were last known 31 s ago"
    freshness.reached(500)
    assert freshness.stale(50) is None
    assert freshness.stale(51) == "the newest sums were last known 31 s ago"


def test_an_empty_topic_is_known_at_once() -> None:
    """Its end is 0, which is where reading begins."""
    freshness = Freshness(30)
    freshness.ended(5, 0)
    freshness.reached(0)
    assert freshness.stale(6) is None
