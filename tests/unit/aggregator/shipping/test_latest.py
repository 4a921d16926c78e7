"""The newest sums of a topic that is read from its beginning, and when they can't be taken for the newest any more."""

from __future__ import annotations

import pytest

from support.undecodable import UNDECODABLE
from tallystream.errors import TallystreamError
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.ledger import Epochs
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.shipping.latest import Freshness, LatestSums


def record(offset: int, name: str, count: int, *, epoch: int = 1) -> Read:
    """A row of `metrics-agg`."""
    row = sums.Sum(app="orders", name=name, type="counter", count=count, ts=offset, epoch=epoch)
    return Read(name.encode(), sums.encode(row), offset)


def test_of_each_key_the_last_row_is_a_point() -> None:
    """Of a chunk, in the order of offsets; the next chunk has its own."""
    newest = LatestSums(Epochs(lambda: None))
    points = newest.points([record(0, "a", 1), record(1, "b", 5), record(2, "a", 2)])
    assert {point.measurement: point.fields["count"] for point in points} == {"a": 2, "b": 5}
    assert [point.fields["count"] for point in newest.points([record(3, "a", 3)])] == [3]


def test_a_replaced_writer_is_left_out_for_good() -> None:
    """A row of a lower epoch than one before it, in this chunk or an earlier one, of any key."""
    newest = LatestSums(Epochs(lambda: None))
    points = newest.points([record(0, "a", 1), record(1, "b", 5, epoch=2), record(2, "a", 99)])
    assert {point.measurement: point.fields["count"] for point in points} == {"a": 1, "b": 5}
    assert newest.points([record(3, "c", 99)]) == []
    assert newest.dropped == 2


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values()], ids=["none", *UNDECODABLE])
def test_records_that_are_not_sums_are_counted_and_skipped(value: bytes | None) -> None:
    """No value stops the others."""
    newest = LatestSums(Epochs(lambda: None))
    points = newest.points([Read(b"k", value, 0), record(2, "a", 7)])
    assert [point.fields["count"] for point in points] == [7]
    assert newest.unreadable == 1


def test_an_epoch_that_the_ledger_does_not_have_hides_no_sum() -> None:
    """A row of 2^62 is not shown, and the true writer's rows after it are, in this chunk and the next."""
    newest = LatestSums(Epochs(lambda: 1))
    points = newest.points([record(0, "a", 99, epoch=2**62), record(1, "a", 1)])
    assert [point.fields["count"] for point in points] == [1]
    assert [point.fields["count"] for point in newest.points([record(2, "a", 2)])] == [2]
    assert newest.dropped == 1


def test_while_the_ledger_cannot_be_read_nothing_is_taken() -> None:
    """The same records are given again when it can, and counted once."""
    answers: list[int] = []

    def set_function() -> int:
        if not answers:
            raise TallystreamError("the ledger can't be read")
        return answers[0]

    newest = LatestSums(Epochs(set_function))
    records = [Read(b"k", b"{", 0), record(1, "a", 1)]
    with pytest.raises(TallystreamError):
        newest.points(records)
    answers.append(1)
    assert [point.fields["count"] for point in newest.points(records)] == [1]
    assert (newest.unreadable, newest.dropped) == (1, 0)


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
