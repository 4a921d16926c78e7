"""Which partitions need a clock record."""

from __future__ import annotations

from tallystream_aggregator.jobs.aggregate.clock_records import EVERY_S, ClockTimer
from tallystream_aggregator.stream.broker import Place

ONE, TWO = Place("metrics", 0), Place("metrics", 1)


def test_a_partition_whose_end_does_not_move_for_a_second_needs_a_record() -> None:
    """So does one that appears later. Its own clock record moves the end and begins another second."""
    timer = ClockTimer()
    assert timer.due({ONE: 5}, 0.0) == []
    assert timer.due({ONE: 6, TWO: 0}, 0.5) == []
    assert timer.due({ONE: 6, TWO: 0}, 1.25) == []
    assert timer.due({ONE: 6, TWO: 0}, 1.5) == [ONE, TWO]
    assert timer.due({ONE: 7, TWO: 1}, 2.0) == []
    assert timer.due({ONE: 7, TWO: 2}, 3.0) == [ONE]


def test_a_busy_partition_needs_a_record_every_minute() -> None:
    """Else no life of it would ever be forgotten."""
    timer = ClockTimer()
    due_s = [second for second in range(200) if timer.due({ONE: second}, float(second))]
    assert due_s == [60, 120, 180]
    assert EVERY_S == 60


def test_many_partitions_get_as_many_records_a_second_as_fifty() -> None:
    """With a hundred partitions the second becomes two."""
    timer = ClockTimer()
    ends = {Place("metrics", number): 0 for number in range(100)}
    found = [len(timer.due(ends, second / 2)) for second in range(9)]
    assert found == [0, 0, 0, 0, 100, 0, 0, 0, 100]
