"""`doctor`: the difference of two clocks, from what can be read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystream_cli.doctor.clock import Bounds, Sample, bounds, finding
from tallystream_cli.doctor.influxdb import clock_bounds


def sample(at_ms: float, newest_ms: int) -> Sample:
    """Return a request that took 20 ms and found one partition with this newest timestamp."""
    return Sample(at_ms, at_ms + 20, {0: newest_ms})


@given(skew_ms=st.integers(-100_000, 100_000), appended=st.lists(st.integers(0, 5_000), min_size=1, max_size=9))
def test_the_difference_is_always_within_the_bounds(skew_ms: int, appended: list[int]) -> None:
    """Whenever records arrive, the real difference is between the bounds."""
    start_ms = 1_000_000
    samples = []
    for at_ms in range(start_ms, start_ms + 5_000, 250):
        arrived = [start_ms + one for one in appended if start_ms + one <= at_ms + 10]  # the broker's answer is at +10
        samples.append(Sample(at_ms, at_ms + 20, {0: max(arrived) + skew_ms} if arrived else {}))
    low, high = bounds(samples)
    assert low is None or low * 1000 <= skew_ms
    assert high is None or skew_ms <= high * 1000


def test_a_record_that_arrives_bounds_the_difference_on_both_sides() -> None:
    """Without an arrival, only one side is known: the record may be old."""
    assert bounds([sample(100_000, 90_000), sample(100_250, 90_000)]) == Bounds(-10.02, None)
    assert bounds([sample(100_000, 90_000), sample(100_250, 100_100)]) == Bounds(-0.17, 0.1)
    assert bounds([]) == Bounds(None, None)


def test_a_difference_of_more_than_five_seconds_is_a_warning() -> None:
    """The side is named; a clock of which too little is known is not checked."""
    assert finding("clock", Bounds(-0.2, 0.1), "b").status == "ok"
    assert "7.0 s or more behind" in finding("clock", Bounds(7.0, None), "b").found
    assert "8.0 s or more ahead" in finding("clock", Bounds(-90.0, -8.0), "b").found
    for unknown in (Bounds(None, None), Bounds(-3.0, None), Bounds(-60.0, 0.1)):
        assert finding("clock", unknown, "b").status == "not checked"


def test_the_date_of_a_response_has_whole_seconds() -> None:
    """The server's clock is somewhere within that second."""
    low, high = clock_bounds("Thu, 01 Jan 1970 00:01:40 GMT", 100.5, 100.75)
    assert (low, high) == (-0.75, 0.5)
    assert clock_bounds(None, 1.0, 2.0) == Bounds(None, None)
