"""The rules of the statuses: for each status, a history that has it."""

from __future__ import annotations

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lag import Rounds, group, round_of
from tallystream_dashboards.lag.samples import OffsetSample
from tallystream_dashboards.lag.status import Evaluation, Late, Rules, Status, evaluate_group, evaluate_samples

RULES = Rules(window_s=100)
NOW = 1_000_000


def samples(*pairs: tuple[int, int], every_s: int = 10) -> list[OffsetSample]:
    """Return samples (committed, end), the last one of now."""
    first = NOW - (len(pairs) - 1) * every_s * 1000
    return [OffsetSample(first + i * every_s * 1000, at, end) for i, (at, end) in enumerate(pairs)]


def late(found: list[OffsetSample]) -> Late | None:
    """Return since when all samples have a lag."""
    times = [sample.ts_ms for sample in takewhile(lambda one: one.lag, reversed(found))]
    return Late(times[-1]) if times else None


def status(found: list[OffsetSample], rules: Rules = RULES, members: int | None = 0) -> Status:
    evaluation = evaluate_samples(found, members, now_ms=NOW, rules=rules, late=late(found))
    assert evaluation.reason.endswith(".")
    return evaluation.status


def test_no_progress_and_no_members_is_stop() -> None:
    """If records wait and nothing was committed for more than half the window, a group without members is STOP."""
    assert status(samples((1, 9), (5, 9), (5, 9), *[(5, 9)] * 6)) is Status.STOP
    assert status(samples(*[(5, 9)] * 11), members=None) is Status.STOP


@pytest.mark.parametrize("waiting", [0, 3])
def test_a_group_that_had_nothing_to_read_has_not_stopped(waiting: int) -> None:
    """As long as no more records waited than are allowed, the group made no pause."""
    rules = Rules(window_s=100, allowed_lag=waiting)
    found = evaluate_samples(samples(*[(5, 5 + waiting)] * 10, (5, 9)), 0, now_ms=NOW, rules=rules)
    assert found == Evaluation(Status.OK, "The lag is 4.")


def test_no_progress_with_members_is_stall() -> None:
    """If records wait and nothing was committed for more than half the window, a group with members is STALL."""
    for lag, members, waits, has in ((4, 2, "4 records wait", "2 members"), (1, 1, "1 record waits", "1 member")):
        found = evaluate_samples(samples(*[(5, 5 + lag)] * 11), members, now_ms=NOW, rules=RULES)
        reason = f"{waits}, and the committed offset has not moved for 100 s or more, although the group has {has}."
        assert found == Evaluation(Status.STALL, reason)


def test_a_pause_is_shown_before_it_is_a_stop() -> None:
    """A shorter pause is OK, and its length is in the reasons of the partition and of the group."""
    found = evaluate_samples(samples((1, 1), (2, 2), (3, 4), *[(3, 9)] * 5), 0, now_ms=NOW, rules=RULES)
    assert (found.status, found.notable) == (Status.OK, True)
    assert (
        found.reason
        == "6 records wait, and the committed offset has not moved for 50 s; from 50 s on it counts as stopped."
    )
    well = Evaluation(Status.OK, "The lag is 0.")
    assert evaluate_group([("t/0", well), ("t/1", found)]).reason == f"t/1: {found.reason}"
    assert evaluate_group([("t/0", well), ("t/1", well)]).reason == "All 2 partitions are OK. t/0: The lag is 0."


def test_lag_that_does_not_fall_is_warn() -> None:
    """The group makes progress and is late in the whole window, and its lag is as high as when the window began."""
    growing = samples(*[(i * 10, 100 + i * 11) for i in range(11)])
    found = evaluate_samples(growing, 0, now_ms=NOW, rules=RULES, late=Late(NOW - 100_000))
    assert found == Evaluation(Status.WARN, "It is over 30 s behind; in 100 s the lag went from 100 to 110.")
    assert status(samples(*[(i * 10, 100 + i * 10) for i in range(11)])) is Status.WARN


def test_the_sample_before_the_window_is_that_of_its_begin() -> None:
    """If it is not much older. The lag was 0 then."""
    inside = [OffsetSample(NOW - 95_000 + 10_000 * number, number, number + 10) for number in range(10)]
    found = [OffsetSample(NOW - 105_000, 0, 0), *inside]
    evaluation = evaluate_samples(found, 0, now_ms=NOW, rules=RULES, late=Late(NOW - 100_000))
    assert evaluation.reason == "It is over 30 s behind; in 100 s the lag went from 0 to 10."


def test_lag_that_falls_too_slowly_is_warn() -> None:
    """At the rate of the window the group needs more than an hour to catch up."""
    assert status(samples(*[(i * 10, 400 + i * 9) for i in range(11)])) is Status.WARN
    assert status(samples(*[(i * 10, 360 + i * 9) for i in range(11)])) is Status.OK
    in_an_hour = [OffsetSample(NOW - 100_000, 0, 37), OffsetSample(NOW, 1, 37)]
    assert status(in_an_hour) is Status.OK


def test_an_offset_that_goes_back_is_rewind() -> None:
    """A committed offset that goes back is REWIND: the group reads records again. What follows is no second rewind."""
    back = samples((50, 90), (60, 95), (20, 99), every_s=1)
    found = evaluate_samples(back, 0, now_ms=NOW, rules=RULES)
    assert found == Evaluation(Status.REWIND, "The committed offset went back from 60 to 20.")
    assert status(samples((50, 90), (60, 95), (20, 99), (21, 100), every_s=1)) is Status.OK


def test_no_samples_is_notfound() -> None:
    """A partition without samples in the window is NOTFOUND."""
    assert evaluate_samples([], 0, now_ms=NOW, rules=RULES).status is Status.NOTFOUND
    assert evaluate_samples([OffsetSample(NOW - 200_000, 1, 9)], 0, now_ms=NOW, rules=RULES).status is Status.NOTFOUND


@pytest.mark.parametrize("allowed_lag", [0, 99])
@pytest.mark.parametrize(
    ("commits_and_lags", "window_s", "expected"),
    [
        pytest.param([(1000, 0), (2000, 50), (3000, 100), (4000, 150), (5000, 200)], 1000, Status.OK, id="lag was 0"),
        pytest.param([(1000, 100), (1000, 150), (1000, 200), (1000, 250), (1000, 300)], 600, Status.STALL, id="stall"),
        pytest.param([(1000, 50), (2000, 100), (3000, 150), (4000, 200), (5000, 0)], 1000, Status.OK, id="no lag now"),
        pytest.param([(1000, 99), (2000, 98), (2000, 98)], 1000, Status.OK, id="few commits"),
        pytest.param(
            [(1000, 100), (2000, 150), (3000, 200), (2000, 1250), (2500, 300)], 1000, Status.REWIND, id="rewind"
        ),
    ],
)
def test_cases_of_burrows_evaluator(
    commits_and_lags: list[tuple[int, int]], window_s: int, expected: Status, allowed_lag: int
) -> None:
    """A commit every 100 s has the status that it has in Burrow's own test, with and without an allowed lag."""
    rounds = Rounds(Rules(window_s=window_s, allowed_lag=allowed_lag))
    for number, (committed, lag) in enumerate([*commits_and_lags, commits_and_lags[-1]]):
        rounds.points(round_of(group("g", (committed, committed + lag))), NOW + number * 100_000)
    assert rounds.states[0].partitions[0].evaluation.status is expected


SAMPLES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30).map(
    lambda pairs: samples(*[(at, at + ahead) for at, ahead in pairs], every_s=5)
)


@given(SAMPLES, st.integers(0, 100))
def test_a_higher_allowed_lag_gives_no_new_alarm(found: list[OffsetSample], allowed: int) -> None:
    """A history that is OK if no lag is allowed is OK if some is."""
    strict, tolerant = status(found), status(found, Rules(window_s=100, allowed_lag=allowed))
    assert not (strict is Status.OK and tolerant is not Status.OK)


@pytest.mark.parametrize(
    ("partitions", "group"),
    [
        ([Status.OK, Status.OK], Status.OK),
        ([Status.OK, Status.WARN], Status.WARN),
        ([Status.WARN, Status.STALL], Status.ERR),
        ([Status.OK, Status.STOP], Status.ERR),
        ([Status.REWIND], Status.ERR),
        ([Status.NOTFOUND, Status.OK], Status.OK),
        ([Status.NOTFOUND], Status.NOTFOUND),
        ([], Status.NOTFOUND),
    ],
)
def test_a_group_is_as_bad_as_its_worst_partition(partitions: list[Status], group: Status) -> None:
    """STOP, STALL and REWIND make the group ERR. NOTFOUND partitions count only if all are."""
    named = [(f"t/{i}", Evaluation(one, f"It is {one.name}.")) for i, one in enumerate(partitions)]
    assert evaluate_group(named).status is group


def test_the_reason_of_a_group_counts_its_bad_partitions() -> None:
    """It names the worst one, whose reason it has."""
    found = Evaluation(Status.STOP, "Why."), Evaluation(Status.OK, "Well.")
    for number, text in ((1, ""), (2, " (1 of 2 partitions)")):
        named = [(f"t/{at}", one) for at, one in enumerate(found[:number])]
        assert evaluate_group(named).reason == f"STOP in t/0{text}: Why."


def test_a_stop_is_detected_after_a_gap() -> None:
    """If the offset is the same as before a long gap, the group has stopped. A new record after the gap is OK.

    If it has moved, the group is late as before the gap.
    """
    now = samples((5, 99), (5, 99))
    assert status([OffsetSample(NOW - 900_000, 5, 90), *now]) is Status.STOP
    assert status([OffsetSample(NOW - 900_000, 5, 5), *now]) is Status.OK
    assert status([OffsetSample(NOW - 900_000, 4, 90), *now]) is Status.WARN


def test_a_topic_that_was_created_again_is_no_rewind() -> None:
    """The offset went back, but every record was read."""
    assert status(samples((50, 90), (60, 95), (5, 5))) is Status.OK
