"""The newest sums of a topic that is read from its beginning, and whether they are up to date."""

from __future__ import annotations

import pytest

from support.undecodable import UNDECODABLE
from tallystream.errors import TallystreamError
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.ledger import Epochs
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.shipping.latest import MAX_AGE_S, Freshness, LatestSums


def record(offset: int, name: str, count: int, *, epoch: int = 1, batch: int = 0) -> Read:
    """A row of `metrics-agg`."""
    row = sums.Sum(app="orders", name=name, type="counter", count=count, ts=offset, epoch=epoch, batch=batch)
    return Read(name.encode(), sums.encode(row), offset)


def test_the_last_row_of_each_key_is_a_point() -> None:
    """Each chunk has its own points."""
    newest = LatestSums(Epochs(lambda: None))
    points = newest.points([record(0, "a", 1), record(1, "b", 5), record(2, "a", 2)])
    assert {point.measurement: point.fields["count"] for point in points} == {"a": 2, "b": 5}
    assert [point.fields["count"] for point in newest.points([record(3, "a", 3)])] == [3]


def test_the_rows_of_a_replaced_writer_are_skipped() -> None:
    """A row is skipped if an earlier row of any key has a higher epoch, in this chunk or an earlier one."""
    newest = LatestSums(Epochs(lambda: None))
    points = newest.points([record(0, "a", 1), record(1, "b", 5, epoch=2), record(2, "a", 99)])
    assert {point.measurement: point.fields["count"] for point in points} == {"a": 1, "b": 5}
    assert newest.points([record(3, "c", 99)]) == []
    assert newest.dropped == 2


def test_the_rows_of_an_earlier_batch_are_skipped() -> None:
    """An executor that Spark gave up writes them after a later batch. The first batches of a new writer are shown.

    A row hides only rows of its own key, whatever its batch.
    """
    newest = LatestSums(Epochs(lambda: None))
    points = newest.points([record(0, "a", 5, batch=5), record(1, "a", 4, batch=4), record(2, "b", 6, batch=3)])
    assert {point.measurement: point.fields["count"] for point in points} == {"a": 5, "b": 6}
    assert newest.points([record(3, "a", 4, batch=4)]) == []
    assert newest.dropped == 2
    assert [point.fields["count"] for point in newest.points([record(4, "a", 7, epoch=2)])] == [7]


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values()], ids=["none", *UNDECODABLE])
def test_a_record_that_is_not_a_sum_is_counted_and_skipped(value: bytes | None) -> None:
    """The other records become points."""
    newest = LatestSums(Epochs(lambda: None))
    points = newest.points([Read(b"k", value, 0), record(2, "a", 7)])
    assert [point.fields["count"] for point in points] == [7]
    assert newest.unreadable == 1


def test_an_epoch_that_the_ledger_does_not_have_hides_no_sum() -> None:
    """A row with epoch 2^62 is not shown. The rows of the active writer after it are, in this chunk and the next."""
    newest = LatestSums(Epochs(lambda: 1))
    points = newest.points([record(0, "a", 99, epoch=2**62), record(1, "a", 1)])
    assert [point.fields["count"] for point in points] == [1]
    assert [point.fields["count"] for point in newest.points([record(2, "a", 2)])] == [2]
    assert newest.dropped == 1


def test_records_wait_while_the_ledger_cannot_be_read() -> None:
    """The same records are given again later, and are counted once."""
    epochs: list[int] = []

    def highest_epoch() -> int:
        if not epochs:
            raise TallystreamError("the ledger can't be read")
        return epochs[0]

    newest = LatestSums(Epochs(highest_epoch))
    records = [Read(b"k", b"{", 0), record(1, "a", 1)]
    with pytest.raises(TallystreamError):
        newest.points(records)
    epochs.append(1)
    assert [point.fields["count"] for point in newest.points(records)] == [1]
    assert (newest.unreadable, newest.dropped) == (1, 0)


def test_sums_are_stale_until_an_end_is_reached() -> None:
    """The position must reach one end. Later ends do not matter."""
    freshness = Freshness()
    assert freshness.stale(0) == "the newest sums are not known yet"
    freshness.ended(0, 100)
    freshness.reached(99)
    assert freshness.stale(1) == "the newest sums are not known yet"
    freshness.ended(2, 200)
    freshness.reached(100)
    assert freshness.stale(3) is None


def test_sums_become_stale_if_no_later_end_is_reached() -> None:
    """The time of the end counts, not the time at which it was reached. `MAX_AGE_S` is 30."""
    freshness = Freshness()
    assert MAX_AGE_S == 30
    freshness.ended(0, 10)
    freshness.reached(10)
    freshness.ended(20, 500)
    freshness.reached(499)
    assert freshness.stale(30) is None
    assert freshness.stale(31) == "the newest sums were last known 31 s ago"
    freshness.reached(500)
    assert freshness.stale(50) is None
    assert freshness.stale(51) == "the newest sums were last known 31 s ago"


def test_an_empty_topic_is_up_to_date() -> None:
    """Its end is 0, and the position, too."""
    freshness = Freshness()
    freshness.ended(5, 0)
    freshness.reached(0)
    assert freshness.stale(6) is None
