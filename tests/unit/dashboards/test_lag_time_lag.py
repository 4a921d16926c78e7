"""Time lag: interpolated within the history of ends, a lower bound outside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_dashboards.lag.time_lag import (
    NO_LAG,
    EndOffsetHistory,
    TimeLag,
    max_observations,
    worst,
)

SECOND = 1000
T0 = 1_700_000_100_000


def history(*observations: tuple[int, int]) -> EndOffsetHistory:
    """Return a history of (ms, end)."""
    ends = EndOffsetHistory()
    for ts_ms, end in observations:
        ends.add(ts_ms, end)
    return ends


@st.composite
def produced(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], int]:
    """Return the time at which each record was appended, the observed ends, and a later moment."""
    appended = sorted(draw(st.lists(st.integers(0, 300 * SECOND), min_size=1, max_size=40)))
    times = sorted(draw(st.sets(st.integers(0, 300 * SECOND), min_size=1, max_size=40)))
    observations = [(ts, sum(at <= ts for at in appended)) for ts in times]
    return appended, observations, times[-1] + draw(st.integers(0, 10 * SECOND))


@given(produced(), st.data())
def test_the_true_age_is_never_contradicted(
    found: tuple[list[int], list[tuple[int, int]], int], data: st.DataObject
) -> None:
    """An exact age is between the two observations of the record's arrival. A lower bound is at most the true age."""
    appended, observations, now = found
    committed = data.draw(st.integers(0, observations[-1][1]))
    lag = history(*observations).time_lag(committed, now_ms=now)
    assert lag is not None
    if committed == observations[-1][1]:
        assert lag == NO_LAG
        return
    true_s = (now - appended[committed]) / SECOND
    assert lag.seconds >= 0
    if not lag.exact:
        assert lag.seconds <= true_s
        return
    later = next(ts for ts, end in observations if end > committed)
    earlier = [ts for ts, end in observations if end <= committed][-1]
    for seconds in (lag.seconds, true_s):
        assert (now - later) / SECOND <= seconds <= (now - earlier) / SECOND


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.integers(8, 40))
def test_a_downsampled_history_agrees_with_the_full_one(growth: list[int], limit: int) -> None:
    """With few observations an age still agrees with the moments between which the record arrived."""
    ends, full, end = EndOffsetHistory(), [], 0
    for number, grown in enumerate(growth):
        end += grown
        ends.add(T0 + number * SECOND, end, limit=limit)
        full.append((T0 + number * SECOND, end))
    now_ms = full[-1][0]
    assert len(ends) <= limit
    for committed in range(end):
        later = next(ts for ts, at in full if at > committed)
        lag = ends.time_lag(committed, now_ms=now_ms)
        assert lag is not None
        assert lag.exact or lag.seconds <= (now_ms - later) / SECOND + 1e-6


def test_a_gap_is_not_interpolated() -> None:
    """After two minutes without an observation, the record is at least as old as the first one after them."""
    ends = history((0, 100), (120 * SECOND, 200))
    assert ends.time_lag(150, now_ms=130 * SECOND) == TimeLag(10.0, exact=False)


@pytest.mark.parametrize(("committed", "ends"), [(None, [(0, 5)]), (9, [(0, 5)]), (9, [])])
def test_an_unknown_age_is_no_number(committed: int | None, ends: list[tuple[int, int]]) -> None:
    """There is no age without a commit, for a commit past the end, and without a history."""
    assert history(*ends).time_lag(committed, now_ms=50) is None


def test_an_end_that_falls_begins_a_new_history() -> None:
    """A topic that was created again has a new history: the ends before say nothing about its records."""
    ends = history((0, 1000), (10 * SECOND, 0), (20 * SECOND, 10))
    assert (len(ends), ends.time_lag(0, now_ms=20 * SECOND)) == (2, TimeLag(10.0))


def test_memory_is_bounded_by_the_number_of_partitions() -> None:
    """A hundred thousand partitions have few observations each, a hundred have many."""
    assert (max_observations(100), max_observations(100_000), max_observations(0)) == (2_000, 60, 2_000)


@pytest.mark.parametrize(
    ("time_lags", "expected"),
    [
        ([NO_LAG, TimeLag(3.0)], TimeLag(3.0)),
        ([TimeLag(3.0), TimeLag(2.0, exact=False)], TimeLag(3.0, exact=False)),
        ([TimeLag(3.0), None], TimeLag(3.0, exact=False)),
        ([NO_LAG, NO_LAG], NO_LAG),
        ([NO_LAG, None], None),
        ([None], None),
        ([], None),
    ],
)
def test_the_worst_of_several(time_lags: list[TimeLag | None], expected: TimeLag | None) -> None:
    """The largest counts. If one is unknown, the result is a lower bound, or unknown if the others are 0."""
    assert worst(time_lags) == expected


def test_a_time_lag_grows_with_time_unless_it_is_zero() -> None:
    """A stored time lag is shown with the time that has passed since then."""
    assert TimeLag(3.0).after(2.0) == TimeLag(5.0)
    assert TimeLag(1.0, exact=False).after(2.0) == TimeLag(3.0, exact=False)
    assert NO_LAG.after(2.0) == NO_LAG
