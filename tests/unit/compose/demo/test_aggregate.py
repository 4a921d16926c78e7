"""The sums as they are watched: the newest row of a key wins, and a fall is noticed."""

from __future__ import annotations

from tallystream_aggregator import sums
from tallystream_cli.demo.sums import Dip, Sums, positions_covered


def _row(count: int, *, epoch: int = 1, batch: int = 0, name: str = "flights.processed") -> bytes:
    return sums.encode(sums.Sum(app="flights", name=name, type="counter", count=count, ts=0, epoch=epoch, batch=batch))


def test_the_highest_epoch_and_batch_wins() -> None:
    """A row that an older writer, or an older batch, wrote later changes nothing and is no dip."""
    view = Sums()
    for row in (_row(5, batch=1), _row(9, batch=2), _row(3, batch=1), _row(10, epoch=2), _row(4, batch=9)):
        view.take(row)
    assert view.count() == 10
    assert view.dips == []


def test_a_fall_is_a_dip() -> None:
    """A newer row with a lower count is kept as what it was and what came after."""
    view = Sums()
    for batch, count in enumerate((5, 9, 8, 12)):
        view.take(_row(count, batch=batch))
    assert view.dips == [Dip(9, 8)]


def test_values_leave_out_what_depends_on_time() -> None:
    """Gauges are no part of the comparison; of a position its two offsets are."""
    view = Sums()
    view.take(sums.encode(sums.Sum(app="a", name="now", type="gauge", sum=3, number=1, ts=0)))
    for partition in ("0", "1"):
        row = sums.Sum(app="a", name="at", type="position", tags={"partition": partition}, start=2, position=7, ts=0)
        view.take(sums.encode(row))
    values = view.values()
    assert [key[2] for key in values] == ["position", "position"]
    assert positions_covered(values) == 10
