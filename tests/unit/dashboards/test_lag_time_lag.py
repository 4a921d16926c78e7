"""Lag in seconds: interpolated inside the history, bounded outside it, never invented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_dashboards.lag.time_lag import (
    AtLeast,
    Exact,
    Observation,
    SecondsLag,
    Unknown,
    Zero,
    at_least,
    seconds_lag,
    worst,
)

SECOND = 1000


@st.composite
def produced(draw: st.DrawFn) -> tuple[list[int], list[Observation], int]:
    """A partition: the append time of each record, what a collector saw every few seconds, and a moment after it."""
    appended = sorted(draw(st.lists(st.integers(0, 300 * SECOND), min_size=1, max_size=40)))
    samples = sorted(draw(st.sets(st.integers(0, 300 * SECOND), min_size=1, max_size=40)))
    history = [Observation(ts, sum(at <= ts for at in appended)) for ts in samples]
    return appended, history, samples[-1] + draw(st.integers(0, 10 * SECOND))


@given(produced(), st.data())
def test_the_true_age_is_never_contradicted(
    found: tuple[list[int], list[Observation], int], data: st.DataObject
) -> None:
    """Exact lies between the two looks that the record was appended between; AtLeast is never more than the truth."""
    appended, history, now = found
    committed = data.draw(st.integers(0, history[-1].end))
    lag = seconds_lag(committed, history, now_ms=now)
    if committed == history[-1].end:
        assert lag == Zero()
        return
    truth_s = (now - appended[committed]) / SECOND
    assert isinstance(lag, Exact | AtLeast)
    assert lag.seconds >= 0
    if isinstance(lag, AtLeast):
        assert lag.seconds <= truth_s
        return
    later = next(one for one in history if one.end > committed)
    earlier = [one for one in history if one.end <= committed][-1]
    for seconds in (lag.seconds, truth_s):
        assert (now - later.ts_ms) / SECOND <= seconds <= (now - earlier.ts_ms) / SECOND


def test_between_two_looks_it_is_interpolated() -> None:
    """Half of what came within 10 s is taken to have come within 5 s."""
    history = [Observation(0, 100), Observation(10 * SECOND, 200), Observation(20 * SECOND, 200)]
    assert seconds_lag(150, history, now_ms=20 * SECOND) == Exact(15.0)
    assert seconds_lag(100, history, now_ms=20 * SECOND) == Exact(20.0)


def test_zero_lag_is_zero_seconds() -> None:
    """A group that is up to date is not behind at all, however long ago the last record came."""
    assert seconds_lag(200, [Observation(0, 200), Observation(9, 200)], now_ms=10**9) == Zero()


def test_before_the_history_there_is_a_bound() -> None:
    """A record older than the first look is at least as old as that look: no line is drawn into the past."""
    assert seconds_lag(50, [Observation(0, 100), Observation(9 * SECOND, 200)], now_ms=9 * SECOND) == AtLeast(9.0)


def test_over_a_gap_nothing_is_interpolated() -> None:
    """When nobody looked for two minutes, the record is at least as old as the first look after them."""
    history = [Observation(0, 100), Observation(120 * SECOND, 200)]
    assert seconds_lag(150, history, now_ms=130 * SECOND) == AtLeast(10.0)


@pytest.mark.parametrize(
    ("committed", "history"),
    [(None, [Observation(0, 5)]), (9, [Observation(0, 5)]), (9, []), (9, [Observation(77, 10)])],
)
def test_what_cannot_be_known_says_why(committed: int | None, history: list[Observation]) -> None:
    """No commit, a commit past the end, no history (yet): a reason, and no number."""
    found = seconds_lag(committed, history, now_ms=50)
    assert isinstance(found, Unknown)
    assert found.reason


def test_a_topic_made_anew_starts_a_new_history() -> None:
    """After the end has fallen, what was seen before it says nothing about today's records."""
    history = [Observation(0, 1000), Observation(10 * SECOND, 0), Observation(20 * SECOND, 10)]
    assert seconds_lag(0, history, now_ms=20 * SECOND) == Exact(10.0)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([Zero(), Exact(3.0)], Exact(3.0)),
        ([Exact(3.0), AtLeast(2.0)], AtLeast(3.0)),
        ([Exact(3.0), Unknown("why")], AtLeast(3.0)),
        ([Zero(), Zero()], Zero()),
        ([Zero(), Unknown("why")], Unknown("why")),
        ([Unknown("why")], Unknown("why")),
    ],
)
def test_the_worst_of_several(found: list[SecondsLag], expected: SecondsLag) -> None:
    """The largest counts; what is not known makes it a bound, and never hides what is."""
    assert worst(found) == expected


@given(st.lists(st.one_of(st.builds(Exact, st.floats(0, 1e6)), st.builds(AtLeast, st.floats(0, 1e6)), st.just(Zero()))))
def test_the_worst_is_at_least_each(found: list[SecondsLag]) -> None:
    """No partition is further behind than its group."""
    assert all(at_least(worst(found)) >= at_least(one) for one in found)
