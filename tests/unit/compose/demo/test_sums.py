"""The latest sums: the latest row of a key, and the decreases of a counter."""

from __future__ import annotations

from tallystream_aggregator import sums
from tallystream_cli.demo.sums import Decrease, LatestSums, positions_covered


def _row(count: int, *, epoch: int = 1, batch: int = 0, name: str = "flights.processed") -> bytes:
    return sums.encode(sums.Sum(app="flights", name=name, type="counter", count=count, ts=0, epoch=epoch, batch=batch))


def test_the_highest_epoch_and_batch_wins() -> None:
    """A late row of an older writer or an older batch changes nothing and is not a decrease."""
    latest = LatestSums()
    for row in (_row(5, batch=1), _row(9, batch=2), _row(3, batch=1), _row(10, epoch=2), _row(4, batch=9)):
        latest.add(row)
    assert latest.count() == 10
    assert latest.decreases == []


def test_a_decrease_is_recorded() -> None:
    """A later row with a lower count is recorded with the counts before and after."""
    latest = LatestSums()
    for batch, count in enumerate((5, 9, 8, 12)):
        latest.add(_row(count, batch=batch))
    assert latest.decreases == [Decrease(9, 8)]


def test_values_that_depend_on_time_are_left_out() -> None:
    """Gauges are not compared; the two offsets of a position are."""
    latest = LatestSums()
    latest.add(sums.encode(sums.Sum(app="a", name="now", type="gauge", sum=3, number=1, ts=0)))
    for partition in ("0", "1"):
        row = sums.Sum(app="a", name="at", type="position", tags={"partition": partition}, start=2, position=7, ts=0)
        latest.add(sums.encode(row))
    values = latest.values()
    assert [key[2] for key in values] == ["position", "position"]
    assert positions_covered(values) == 10
