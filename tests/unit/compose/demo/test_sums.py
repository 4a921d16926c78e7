"""The latest sums: the latest row of a key, and the decreases of a counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystream_aggregator import sums
from tallystream_cli.demo.sums import SumsReader, counted
from tallystream_dashboards.data.compare import Counted, Place, Range

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def reader() -> Iterator[SumsReader]:
    """A reader that no broker answers."""
    reader = SumsReader("127.0.0.1:1", "metrics-agg")
    yield reader
    reader.close()


def test_a_decrease_is_counted(reader: SumsReader) -> None:
    """A later row has a lower count."""
    for count in (5, 9, 8, 12):
        reader.add(sums.Sum(app="flights", name="flights.processed", type="counter", count=count, ts=0))
    assert (reader.count(), reader.decreases) == (12, 1)


def test_values_that_depend_on_time_are_left_out(reader: SumsReader) -> None:
    """Gauges are not compared; the two offsets of a position are."""
    reader.add(sums.Sum(app="a", name="now", type="gauge", sum=3, number=1, ts=0))
    for partition in ("0", "1"):
        reader.add(
            sums.Sum(app="a", name="at", type="position", tags={"partition": partition}, start=2, position=7, ts=0)
        )
    assert [key[2] for key in reader.values()] == ["position", "position"]


def test_what_a_counter_counted(reader: SumsReader) -> None:
    """It has its own count, and the offsets of its own positions."""
    for name, end in (("in", 7), ("in.taken", 9)):
        at = {"topic": "flights", "partition": "0"}
        reader.add(sums.Sum(app="a", name=name, type="counter", count=end, ts=0))
        reader.add(sums.Sum(app="a", name=f"{name}.position", type="position", tags=at, start=2, position=end, ts=0))
    assert counted(reader.values(), "in") == Counted(7, {Place("flights", "0"): Range(2, 7)})
