"""Rates, the time to drain, and a whole group judged from its points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_aggregator.sinks.base import Series
from tallystream_dashboards.lag.catch_up import Between, Drained, Never, NotKnown, Rates, Steady, drain, rates
from tallystream_dashboards.lag.evaluate import evaluate
from tallystream_dashboards.lag.status import OffsetSample, Rules, Status
from tallystream_dashboards.lag.time_lag import Exact, Unknown, Zero


def test_rates_are_records_by_time() -> None:
    """10 s, 50 produced, 80 consumed; what went back counts as nothing."""
    assert rates([OffsetSample(0, 0, 100), OffsetSample(10_000, 80, 150)]) == Rates(5.0, 8.0)
    assert rates([OffsetSample(0, 50, 100), OffsetSample(10_000, 20, 90)]) == Rates(0.0, 0.0)


def test_no_rate_from_a_moment() -> None:
    """One look, or two within a second, are no period."""
    assert rates([]) is None
    assert rates([OffsetSample(0, 1, 2)]) is None
    assert rates([OffsetSample(0, 1, 2), OffsetSample(999, 5, 6)]) is None


def test_time_to_drain() -> None:
    """Through within bounds, never, at once, or not known."""
    assert drain(100, [Rates(5, 15), Rates(5, 10)]) == Between(10.0, 20.0)
    assert drain(100, [Rates(5, 15), Rates(5, 5)]) == Between(10.0, None)
    assert drain(100, [Rates(5, 4.9)]) == Never()
    assert drain(100, [Rates(0, 0)]) == Never()
    assert drain(100, [Rates(500, 499), Rates(500, 501)]) == Steady()
    assert drain(33, [Rates(46, 45), Rates(46, 40)]) == Steady()
    assert drain(100, [Rates(5, 50), Rates(5, 60)]) == Between(pytest.approx(100 / 55), pytest.approx(100 / 45))
    assert drain(0, [Rates(5, 5)]) == Drained()
    assert drain(9, []) == NotKnown()


@given(st.integers(1, 10**12), st.lists(st.builds(Rates, st.floats(0, 1e6), st.floats(0, 1e6)), max_size=5))
def test_draining_takes_a_positive_ordered_time(lag: int, seen: list[Rates]) -> None:
    """A range is in order and never negative."""
    found = drain(lag, seen)
    if isinstance(found, Between):
        assert found.low_s > 0
        assert found.high_s is None or found.high_s >= found.low_s


def points(group: str, partition: int, rows: list[tuple[int, int | None, int, int]]) -> list[Series]:
    """Return the fields over time from rows of (seconds, committed, end, members)."""
    tags = {"group": group, "topic": "t", "partition": str(partition)}
    known = [(s * 1000, at) for s, at, _, _ in rows if at is not None]
    times = [s * 1000 for s, *_ in rows]
    found = [
        Series("tallystream.lag", tags, "end", times, [end for *_, end, _ in rows]),
        Series("tallystream.lag", tags, "members", times, [members for *_, members in rows]),
    ]
    if known:
        found.append(Series("tallystream.lag", tags, "committed", [ts for ts, _ in known], [at for _, at in known]))
    return found


def test_a_group_is_judged_as_a_whole() -> None:
    """Lag and rates add up, the oldest age and the worst status win, and the range comes from the rates."""
    series = [
        *points("g", 0, [(s, s * 10, 500 + s * 5, 1) for s in range(101)]),
        *points("g", 1, [(s, s * 5, s * 5, 1) for s in range(101)]),
        *points("idle", 0, [(s, 7, 7, 0) for s in range(101)]),
    ]
    group, idle = evaluate(series, now_ms=100_000, rules=Rules(window_s=100))
    assert (group.group, group.lag, group.rates) == ("g", 0, Rates(10.0, 15.0))
    assert (idle.lag, idle.seconds, idle.evaluation.status, idle.drain) == (0, Zero(), Status.OK, Drained())
    middle = evaluate(series, now_ms=50_000, rules=Rules(window_s=100))[0]
    assert (middle.group, middle.lag, middle.drain) == ("g", 250, Between(50.0, 50.0))


def test_a_consumer_that_stops_is_found_with_the_reason() -> None:
    """Stopped at 100 s: at 100 s it is well, at 175 s it is ERR because of STOP, 75 s old, and never through."""
    series = points("g", 0, [(s, min(s, 100) * 5, s * 5, 1 if s <= 100 else 0) for s in range(176)])
    well, stopped = (evaluate(series, now_ms=at, rules=Rules(window_s=100))[0] for at in (100_000, 175_000))
    assert well.evaluation.status is Status.OK
    assert (stopped.evaluation.status, stopped.partitions[0].evaluation.status) == (Status.ERR, Status.STOP)
    assert stopped.evaluation.reason == (
        "STOP in t/0 (1 of 1 partitions): 375 records wait, and the committed offset has not moved for 75 s; "
        "the group has no members."
    )
    assert (stopped.lag, stopped.seconds) == (375, Exact(75.0))


def test_nothing_committed_is_said() -> None:
    """A partition without a commit has no lag, no age, and the reason."""
    (group,) = evaluate(points("g", 0, [(s, None, 5, 1) for s in range(10)]), now_ms=9000)
    assert (group.lag, group.evaluation.status) == (None, Status.NOTFOUND)
    assert group.evaluation.reason == "The group has committed nothing here."
    assert isinstance(group.seconds, Unknown)
    assert group.drain == NotKnown()


def test_a_commit_past_the_end_is_said() -> None:
    """A topic created again: neither a lag of 0 nor a status of OK."""
    (group,) = evaluate(points("g", 0, [(s, 50, 5, 1) for s in range(10)]), now_ms=9000)
    assert (group.lag, group.evaluation.status) == (None, Status.NOTFOUND)
    assert "past the end" in group.evaluation.reason


def test_a_dead_group_stays_visible() -> None:
    """A group that is no longer looked at keeps its row, with its last lag, as NOTFOUND."""
    (group,) = evaluate(points("g", 0, [(s, 1, 9, 0) for s in range(10)]), now_ms=10_000_000)
    assert (group.lag, group.evaluation.status, group.seen_ms) == (8, Status.NOTFOUND, 9000)


def test_later_points_do_not_change_the_past() -> None:
    """The state of a moment depends on nothing that came after it: history can be asked."""
    rows = [(s, s * 3, s * 5, 1) for s in range(200)]
    early, late = points("g", 0, rows[:101]), points("g", 0, rows)
    assert evaluate(early, now_ms=100_000) == evaluate(late, now_ms=100_000)
