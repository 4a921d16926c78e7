"""The latest sums: the latest row of a key, and the decreases of a counter."""

from __future__ import annotations

from tallystream_aggregator import sums
from tallystream_cli.demo.sums import Decrease, LatestSums, positions_covered


def _row(count: int) -> bytes:
    return sums.Sum(app="flights", name="flights.processed", type="counter", count=count, ts=0).value()


def test_a_decrease_is_recorded() -> None:
    """A later row with a lower count is recorded with the counts before and after."""
    latest = LatestSums()
    for count in (5, 9, 8, 12):
        latest.add(_row(count))
    assert latest.count() == 12
    assert latest.decreases == [Decrease(9, 8)]


def test_values_that_depend_on_time_are_left_out() -> None:
    """Gauges are not compared; the two offsets of a position are."""
    latest = LatestSums()
    latest.add(sums.Sum(app="a", name="now", type="gauge", sum=3, number=1, ts=0).value())
    for partition in ("0", "1"):
        row = sums.Sum(app="a", name="at", type="position", tags={"partition": partition}, start=2, position=7, ts=0)
        latest.add(row.value())
    values = latest.values()
    assert [key[2] for key in values] == ["position", "position"]
    assert positions_covered(values) == 10
