"""How often a status changes, why, and that nothing beside it says otherwise."""

from __future__ import annotations

import random
import re
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.lag import Rounds, group, round_of
from tallystream_dashboards.lag.status import Rules, Status

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.sqlite.sink import LocalStore
    from tallystream_dashboards.lag.state import GroupState, PartitionState

T0 = 1_700_000_100_000
WINDOW_S, WARN_AGE_S = 40, 10
RULES = Rules(window_s=WINDOW_S, warn_age_s=WARN_AGE_S)


def test_groups_that_lag_steadily_stay_ok() -> None:
    """Forty groups that are one or two records behind, at five records a second, do not change their status."""
    chance, rounds = random.Random(1), Rounds()
    committed, seen = [0] * 40, set()
    for second in range(0, 240, 2):
        end = 1_000_000 + 5 * second
        committed = [max(before, end - chance.randint(1, 2)) for before in committed]
        rounds.points(round_of(*(group(f"g{n}", (at, end)) for n, at in enumerate(committed))), T0 + second * 1000)
        seen |= {(one.evaluation.status, one.catch_up.drain) for one in rounds.states if second >= 2}
    assert seen == {(Status.OK, "now")}


@pytest.mark.parametrize("restart_s", [30, 60, 120])
def test_a_restart_of_the_collector_changes_no_status(store: LocalStore, reader: LocalStore, restart_s: int) -> None:
    """A WARN begins, lasts and ends as without a restart, since the store has the samples and the statuses."""
    found, rounds = [], Rounds(RULES)
    for second in range(0, 180, 5):
        now_ms = T0 + second * 1000
        if second == restart_s:
            rounds = Rounds(RULES)
            rounds.load(reader, now_ms)
        committed = 1000 + second if second >= 100 else 980 + second
        store.write(rounds.points(round_of(group("g", (committed, 1000 + second))), now_ms))
        found += [((one.since_ms or 0) - T0, one.evaluation.status) for one in rounds.states]
    assert list(dict.fromkeys(found)) == [(0, Status.OK), (55_000, Status.WARN), (135_000, Status.OK)]


class Step(NamedTuple):
    """For so many rounds of so many seconds each, a partition produces and consumes so many records in each round."""

    rounds: int
    seconds: int
    produced: int
    consumed: int


STEPS = st.lists(
    st.builds(Step, st.integers(1, 12), st.sampled_from([5, 5, 5, 20, 100]), st.integers(0, 9), st.integers(-2, 9)),
    min_size=1,
    max_size=8,
)
HISTORIES = st.lists(STEPS, min_size=1, max_size=3)


class Seen(NamedTuple):
    """What a chart of a group shows of one round."""

    second: int
    group: GroupState
    partitions: dict[int, PartitionState]

    def late(self, partition: int) -> bool:
        """Return whether the partition's time lag is above the threshold."""
        time_lag = self.partitions[partition].time_lag
        return time_lag is not None and time_lag.seconds > WARN_AGE_S


def judged(history: list[list[Step]]) -> list[Seen]:
    """Return every round of a group; the first partition sets the times of the rounds."""
    rounds, seen = Rounds(RULES), []
    steps = [[one for step in partition for one in [step] * step.rounds] for partition in history]
    offsets = [(0, 0)] * len(history)
    for at, second in enumerate(accumulate(step.seconds for step in steps[0])):
        for number, partition in enumerate(steps):
            step, (committed, end) = partition[at % len(partition)], offsets[number]
            end += step.produced
            offsets[number] = min(end, max(0, committed + step.consumed)), end
        rounds.points(round_of(group("g", *offsets)), T0 + second * 1000)
        (state,) = rounds.states
        seen.append(Seen(second, state, {one.partition: one for one in state.partitions}))
    return seen


def changes(statuses: list[tuple[int, Status]], *wanted: tuple[Status, Status]) -> list[int]:
    """Return when a status changed directly from one to another, as wanted."""
    return [second for (_, before), (second, now) in pairwise(statuses) if (before, now) in wanted]


BEGINS, ENDS = (Status.OK, Status.WARN), (Status.WARN, Status.OK)


@given(HISTORIES)
@examples(40)
def test_a_status_changes_at_most_once_a_window(history: list[list[Step]]) -> None:
    """A group changes between OK and WARN at most once a window. A partition's WARN lasts at least that long."""
    seen = judged(history)
    of_group = changes([(one.second, one.group.evaluation.status) for one in seen], BEGINS, ENDS)
    assert all(later - earlier >= WINDOW_S for earlier, later in pairwise(of_group))
    for number in seen[0].partitions:
        statuses = [(one.second, one.partitions[number].evaluation.status) for one in seen]
        for begin in changes(statuses, BEGINS):
            assert all(status is not Status.OK for second, status in statuses if begin <= second < begin + WINDOW_S)


@given(HISTORIES)
@examples(40)
def test_every_warning_can_be_checked_in_the_chart(history: list[list[Step]]) -> None:
    """WARN begins after a window of late records in which the lag did not fall, and ends after a window without any.

    Beside a partition that is WARN, it begins at once. The lags and times of its reason are those of the chart.
    """
    seen = judged(history)
    for at, (before, now) in enumerate(pairwise(seen), 1):
        window = [one for one in seen[: at + 1] if one.second > now.second - WINDOW_S]
        earlier = [one for one in seen[:at] if one.second <= now.second - WINDOW_S]
        for number, state in now.partitions.items():
            change = before.partitions[number].evaluation.status, state.evaluation.status
            if change == BEGINS and before.group.evaluation.status is Status.OK:
                assert earlier
                assert all(one.late(number) for one in (earlier[-1], *window))
                assert (state.lag or 0) >= (earlier[-1].partitions[number].lag or 0)
            elif change == BEGINS:
                assert now.late(number)
            elif change == ENDS:
                assert not any(one.late(number) for one in window)
            if state.evaluation.status is Status.WARN:
                assert_true(state, number, seen[: at + 1])


def assert_true(state: PartitionState, number: int, seen: list[Seen]) -> None:
    """Compare the numbers of a reason with the chart."""
    now, reason = seen[-1], state.evaluation.reason
    if now.late(number):
        (seconds, first, last) = re.findall(r"in (\d+) s the lag went from (\d+) to (\d+)\.", reason)[0]
        known = [one for one in seen if one.second <= now.second - int(seconds)]
        assert (known[-1].partitions[number].lag, state.lag) == (int(first), int(last))
    else:
        (ago,) = re.findall(r"It was over 10 s behind (\d+) s ago", reason)
        assert [one.second for one in seen if one.late(number)][-1] == now.second - int(ago)


@given(HISTORIES)
@examples(40)
def test_nothing_contradicts_a_status(history: list[list[Step]]) -> None:
    """A group is as bad as its worst partition, which its reason names, and says `never` only if it is not OK."""
    for one in judged(history):
        status, reason, _ = one.group.evaluation
        statuses = [state.evaluation.status for state in one.partitions.values()]
        assert status is (Status.ERR if max(statuses) > Status.WARN else max(statuses))
        named = [f"{state.evaluation.status.name} in {state.name} " for state in one.partitions.values()]
        if status is not Status.OK:
            assert any(reason.startswith(named[at]) for at, found in enumerate(statuses) if found is max(statuses))
        if one.group.catch_up.drain == "never at this rate":
            assert status is not Status.OK
        if one.group.catch_up.drain == "now":
            assert not any(one.late(number) for number in one.partitions)
            assert status is not Status.ERR
