"""The state of every group, round after round: lag, rates, time lag, and reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lag import Rounds, group, round_of
from tallystream_dashboards.lag.offsets import GroupOffsets
from tallystream_dashboards.lag.samples import OffsetSample, OffsetSamples, Rates
from tallystream_dashboards.lag.state import GroupState, PartitionState
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.storage import ENDS
from tallystream_dashboards.lag.time_lag import NO_LAG, EndOffsetHistory, TimeLag, max_observations, worst

T0 = 1_700_000_100_000


def samples(*rows: tuple[int, int, int], window_s: int = 100) -> OffsetSamples:
    """Return samples of (seconds, committed, end)."""
    history = OffsetSamples(window_s * 1000)
    for second, committed, end in rows:
        history.add(OffsetSample(second * 1000, committed, end))
    return history


def test_rates_are_records_by_time() -> None:
    """A rate is the difference divided by the time. An offset or an end that went back has the rate 0."""
    assert samples((0, 0, 100), (10, 80, 150)).rates(10_000)[0] == Rates(5.0, 8.0)
    assert samples((0, 50, 100), (10, 20, 90)).rates(10_000)[0] == Rates(0.0, 0.0)
    assert samples((0, 0, 0), (50, 100, 50), (100, 300, 100)).rates(100_000) == (Rates(1.0, 3.0), Rates(1.0, 4.0))


def test_a_rate_does_not_reach_over_a_gap() -> None:
    """What a sample says is valid up to the next one, if that is not two minutes later."""
    assert samples((0, 0, 0), (120, 0, 1000), (130, 100, 1100)).rates(130_000)[0] == Rates(10.0, 10.0)
    assert samples((0, 0, 0), (60, 0, 1000), (130, 100, 1100)).rates(130_000)[0] == Rates(11.0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=120))
def test_rates_are_those_of_all_samples(schedule: list[tuple[int, int]]) -> None:
    """Samples that are left out change no rate: a rate is that of all samples since the period began."""
    history, complete = OffsetSamples(100_000), []
    end = committed = 0
    for number, (produced, consumed) in enumerate(schedule):
        end += produced
        committed = min(end, committed + consumed)
        now_ms = number * 3000
        complete.append((now_ms, committed, end))
        history.add(OffsetSample(*complete[-1]))
        for rates, begin_ms in zip(history.rates(now_ms), (now_ms - 100_000, now_ms - 50_000), strict=True):
            first_ms, *first = next((max(one[0], begin_ms), *one[1:]) for one in complete if one[0] + 3000 > begin_ms)
            seconds = (now_ms - first_ms) / 1000
            expected = [
                (now - before) / seconds for now, before in zip((committed, end), first, strict=True) if seconds
            ]
            assert ([] if rates is None else [rates.consumed, rates.produced]) == expected


def test_samples_are_kept_for_the_window() -> None:
    """Equal samples take the space of two. Of the samples before the window only the last one is kept."""
    history = OffsetSamples(60_000)
    for second in range(0, 300, 5):
        history.add(OffsetSample(T0 + second * 1000, min(second, 100), 400))
    kept = history.all()
    assert kept[-1] == OffsetSample(T0 + 295_000, 100, 400)
    assert len(kept) <= 60 / 5
    assert kept[0].ts_ms < T0 + 235_000


SECOND = 1000


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
        ([TimeLag(0.0, exact=False), None], TimeLag(0.0, exact=False)),
        ([None], None),
        ([], None),
    ],
)
def test_the_worst_of_several(time_lags: list[TimeLag | None], expected: TimeLag | None) -> None:
    """The largest counts. If one is unknown, the result is a lower bound, or unknown if the others are 0."""
    assert worst(time_lags) == expected


RULES = Rules(window_s=100)


def changed(offsets: GroupOffsets, **values: Any) -> GroupOffsets:
    """Return a group whose partitions have other values."""
    return replace(offsets, partitions=tuple(replace(one, **values) for one in offsets.partitions))


def after(offsets: GroupOffsets, rounds: Rounds, seconds: int = 100) -> GroupState:
    """Return a group that was read for so long with the same offsets."""
    for second in range(0, seconds + 1, 5):
        rounds.points(round_of(offsets), T0 + second * 1000)
    (state,) = rounds.states
    return state


def only(state: GroupState) -> PartitionState:
    (partition,) = state.partitions
    return partition


def test_of_the_lag_only_what_was_not_deleted_waits() -> None:
    """A group that stopped is STOP, and the reason tells how many offsets it lost and how many records wait."""
    state = after(changed(group("g", (4, 20), members=0), start=10), Rounds(RULES))
    assert (only(state).evaluation.status, state.lag) == (Status.STOP, 16)
    assert only(state).evaluation.reason == (
        "6 offsets were deleted before they were read. 10 records wait, and the committed offset has not moved for "
        "100 s or more; the group has no members."
    )


def test_the_time_lag_is_that_of_the_oldest_record_that_was_not_deleted() -> None:
    """Those before it have no age any more."""
    rounds = Rounds()
    for second, start, end in ((0, 0, 10), (10, 0, 10), (20, 0, 20), (40, 10, 20)):
        rounds.points(round_of(changed(group("g", (0, end)), start=start)), T0 + second * 1000)
    assert rounds.states[0].time_lag == TimeLag(30)


def test_a_group_stays_late_while_the_partition_that_was_late_is_not_read() -> None:
    """The others do not tell whether it has caught up."""
    rounds, both = Rounds(), group("g", (5, 9), (9, 9))
    unread = replace(both, partitions=both.partitions[1:], unread=frozenset({("orders", 0)}))
    for second, offsets in ((0, both), (40, both), (50, unread), (60, both)):
        rounds.points(round_of(offsets), T0 + second * 1000)
    assert rounds.states[0].late_since_ms == T0 + 40_000


def test_a_group_that_is_back_begins_again() -> None:
    """What was known before it was gone says nothing about the new one: since when it is late and has its status."""
    rounds, late, other = Rounds(), group("g", (5, 9)), group("other", (5, 9))
    for second, offsets in ((0, [late]), (40, [late]), (50, []), (60, [late])):
        rounds.points(round_of(other, *offsets), T0 + second * 1000)
    assert {one.group: (one.late_since_ms, one.since_ms) for one in rounds.states} == {
        "other": (T0 + 40_000, T0),
        "g": (T0 + 60_000, T0 + 60_000),
    }


def test_the_stored_ends_of_a_partition_are_its_start_and_its_end() -> None:
    """A chart shows both."""
    rounds = Rounds()
    points = rounds.points(round_of(changed(group("g", (5, 9)), start=3)), T0)
    assert [point.fields for point in points if point.measurement == ENDS] == [{"start": 3, "end": 9}]


def test_a_partition_that_went_back_counts_for_the_time_to_catch_up() -> None:
    """Its records are not old yet, and are read again."""
    rounds = Rounds()
    for second, committed, end in ((0, 50, 90), (5, 60, 95), (10, 5, 100)):
        rounds.points(round_of(group("g", (committed, end))), T0 + second * 1000)
    assert only(rounds.states[0]).evaluation.status is Status.REWIND
    assert rounds.states[0].catch_up.drain == "never at this rate"


def test_the_ends_of_a_partition_that_no_group_needs_are_dropped() -> None:
    """Memory does not grow with topics that are deleted. A partition that was only not read is kept."""
    rounds, read = Rounds(), group("g", (5, 9))
    for second, offsets in ((0, [read, group("other", (5, 9), topic="old")]), (10, [read]), (20, [])):
        rounds.points(round_of(*offsets, unread=() if offsets else ["g"]), T0 + second * 1000)
    assert set(rounds._tracker._ends) == {("orders", 0)}


def test_a_stored_partition_that_is_ok_has_a_reason_if_it_is_notable() -> None:
    """A record that waits is notable. Without one the reason is always the same."""
    rounds, reasons = Rounds(), list[bool]()
    for second, end in ((0, 9), (10, 13), (50, 13)):
        points = rounds.points(round_of(group("g", (9, end))), T0 + second * 1000)
        (partition,) = [point for point in points if "partition" in point.tags and "committed" in point.fields]
        reasons.append("reason" in partition.fields)
    assert reasons == [False, False, True]


def test_a_group_that_works_but_loses_records_is_a_warning() -> None:
    """It is too slow for the topic's retention, although it makes progress."""
    rounds = Rounds(RULES)
    for second in range(0, 101, 5):
        rounds.points(round_of(changed(group("g", (second, 500 + second % 10)), start=second + 3)), T0 + second * 1000)
    partition = only(rounds.states[0])
    assert partition.evaluation.status is Status.WARN
    assert partition.evaluation.reason.startswith("3 offsets were deleted before they were read. The lag is 4")
    assert rounds.states[0].catch_up.drain == "now"  # none of its records is old


@pytest.mark.parametrize("members", [0, 1])
@pytest.mark.parametrize(("open_from", "is_open"), [(5, True), (9, False), (None, False)])
def test_a_group_that_stopped_names_an_open_transaction(members: int, open_from: int | None, is_open: bool) -> None:
    """Its last stable offset is before the end: a group with read_committed waits for that transaction."""
    rounds = Rounds(RULES)
    rounds.open_from = {} if open_from is None else {("orders", 0): open_from}
    state = after(group("g", (5, 9), members=members), rounds)
    assert only(state).evaluation.status is (Status.STALL if members else Status.STOP)
    text = "A transaction is open from offset 5 on: consumers with read_committed do not read beyond it."
    assert (text in state.evaluation.reason) == is_open
    assert ("transaction" in state.evaluation.reason) == is_open


def test_a_group_that_reads_names_no_transaction() -> None:
    """In the round in which it goes on, also if the transaction was still open then."""
    rounds = Rounds(RULES)
    rounds.open_from = {("orders", 0): 5}
    after(group("g", (5, 9)), rounds)
    rounds.points(round_of(group("g", (6, 9))), T0 + 105_000)
    assert "transaction" not in only(rounds.states[0]).evaluation.reason
