"""How often a status changes, why, and that nothing beside it says otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.lag import Rounds, entered, group, round_of
from support.stores import Points
from tallystream_dashboards.lag.offsets import RoundOffsets
from tallystream_dashboards.lag.samples import MAX_GAP_MS
from tallystream_dashboards.lag.state import GroupState, PartitionState
from tallystream_dashboards.lag.status import Rules, Status

T0 = 1_700_000_100_000
WINDOW_S, WARN_AGE_S, GAP_S = 40, 10, MAX_GAP_MS / 1000
RULES = Rules(window_s=WINDOW_S, warn_age_s=WARN_AGE_S)


class Step(NamedTuple):
    """For so many rounds of so many seconds each, a partition produces and consumes so many records in each round.

    If it produces less than none, its topic was created again, and is empty.
    """

    rounds: int
    seconds: int
    produced: int
    consumed: int


def histories(fewest_produced: int) -> st.SearchStrategy[list[list[Step]]]:
    """Return histories of one to three partitions."""
    seconds, produced = st.sampled_from([5, 5, 5, 20, 100]), st.integers(fewest_produced, 9)
    steps = st.builds(Step, st.integers(1, 12), seconds, produced, st.integers(-2, 9))
    return st.lists(st.lists(steps, min_size=1, max_size=8), min_size=1, max_size=3)


HISTORIES = histories(0)


class Seen(NamedTuple):
    """What a chart of a group shows of one round."""

    second: int
    group: GroupState
    partitions: dict[int, PartitionState]

    def late(self, partition: int) -> bool:
        """Return whether the partition's time lag is above the threshold."""
        time_lag = self.partitions[partition].time_lag
        return time_lag is not None and time_lag.seconds > WARN_AGE_S


def offsets_of(history: list[list[Step]]) -> Iterator[tuple[int, RoundOffsets]]:
    """Yield every round of a group, and when it is; the first partition sets the times."""
    steps = [[one for step in partition for one in [step] * step.rounds] for partition in history]
    offsets = [(0, 0)] * len(history)
    for at, second in enumerate(accumulate(step.seconds for step in steps[0])):
        for number, partition in enumerate(steps):
            step, (committed, end) = partition[at % len(partition)], offsets[number]
            end = 0 if step.produced < 0 else end + step.produced
            consumed = min(end, max(0, committed + step.consumed)) if step.consumed else committed
            offsets[number] = consumed, end
        yield second, round_of(group("g", *offsets))


def judged(history: list[list[Step]], rules: Rules = RULES) -> list[Seen]:
    """Return every round of a group as it is judged."""
    rounds, seen = Rounds(rules), []
    for second, offsets in offsets_of(history):
        rounds.points(offsets, T0 + second * 1000)
        (state,) = rounds.states
        seen.append(Seen(second, state, {one.partition: one for one in state.partitions}))
    return seen


class Change(NamedTuple):
    """A change of a status, and when it was."""

    second: int
    before: Status
    after: Status


def changes(statuses: list[tuple[int, Status]]) -> list[Change]:
    """Return every change of the status."""
    return [Change(now[0], before[1], now[1]) for before, now in pairwise(entered(statuses))]


def of_all(seen: list[Seen]) -> Iterator[list[Change]]:
    """Yield the changes of the group, then of each partition."""
    yield changes([(one.second, one.group.evaluation.status) for one in seen])
    for number in seen[0].partitions:
        yield changes([(one.second, one.partitions[number].evaluation.status) for one in seen])


@given(histories(-2), st.sampled_from([None, 25]))
@examples(100)
def test_a_status_changes_at_most_once_a_window(history: list[list[Step]], err_age_s: int | None) -> None:
    """Between two changes of a group, or of a partition, is a window or more, also if a topic is created again."""
    for found in of_all(judged(history, replace(RULES, err_age_s=err_age_s))):
        assert all(end.second - begin.second >= WINDOW_S for begin, end in pairwise(found))


@given(HISTORIES, st.integers(0, 60), st.booleans())
@examples(100)
def test_a_restart_of_the_collector_changes_no_status(history: list[list[Step]], at: int, is_soon: bool) -> None:
    """A status begins, lasts and ends as without one, since the store has the samples and the statuses.

    A collector may start in the millisecond of the last round.
    """
    rounds, store, last_ms = Rounds(RULES), Points(), T0
    for number, ((second, offsets), seen) in enumerate(zip(offsets_of(history), judged(history), strict=True)):
        now_ms = T0 + second * 1000
        if number == at:
            rounds = Rounds(RULES)
            rounds.load(store, last_ms if is_soon else now_ms)
        store.points += rounds.points(offsets, now_ms)
        (state,), last_ms = rounds.states, now_ms
        assert (state.evaluation.status, state.since_ms) == (seen.group.evaluation.status, seen.group.since_ms)
        for one in state.partitions:
            assert one.evaluation.status is seen.partitions[one.partition].evaluation.status


def idle_s(number: int, seen: list[Seen]) -> int:
    """Return the seconds since the newest progress of a partition that a chart up to its newest round shows."""
    pairs = list(pairwise((one.second, one.partitions[number]) for one in seen))
    progress = [second for (_, a), (second, b) in pairs if a.committed != b.committed]
    # Since when records wait is not known over a gap.
    caught_up = [later if later - second > GAP_S else second for (second, a), (later, _) in pairs if not a.lag]
    return seen[-1].second - max([seen[0].second, *progress, *caught_up])


def is_true(status: Status, number: int, seen: list[Seen], err_age_s: float | None) -> bool:
    """Return whether a chart of the partition up to its newest round shows what gives the status."""
    now = seen[-1]
    state, before = now.partitions[number], (seen[-2:])[0].partitions[number]
    if status is Status.WARN:
        return now.late(number) and idle_s(number, seen) < WINDOW_S / 4
    if not state.lag:
        return False
    if status is Status.REWIND:
        return (state.committed or 0) < (before.committed or 0)
    if status is Status.ERR:
        return err_age_s is not None and state.time_lag is not None and state.time_lag.seconds > err_age_s
    return idle_s(number, seen) > WINDOW_S / 2


def since_gap(seen: list[Seen]) -> list[Seen]:
    """Return the rounds after the newest gap: what moved over a gap, and when, is not known."""
    gaps = [at for at, (one, two) in enumerate(pairwise(seen), 1) if two.second - one.second > GAP_S]
    return seen[gaps[-1] if gaps else 0 :]


def waiting(state: PartitionState) -> Status | None:
    """Return the status that waits until it may begin, as the reason has it."""
    found = re.search(
        rf" That is (\w+), but a status of this group changed in the last {WINDOW_S} s\.$", state.evaluation.reason
    )
    return None if found is None else Status[found[1]]


@given(HISTORIES, st.sampled_from([None, 25]))
@examples(60)
def test_a_status_becomes_worse_at_once_or_says_that_it_waits(history: list[list[Step]], err_age_s: int | None) -> None:
    """A partition is never better than the chart since the newest gap shows it in this round, or its reason says so.

    It does only if a status of the group changed in the last window, or another one waits for that.
    """
    seen = judged(history, replace(RULES, err_age_s=err_age_s))
    changed = [change.second for found in of_all(seen) for change in found]
    for at in range(1, len(seen)):
        warn = (Status.WARN,) if seen[at - 1].group.evaluation.status > Status.NOTFOUND else ()
        for number, state in seen[at].partitions.items():
            if (waits := waiting(state)) is not None:
                assert any(0 <= seen[at].second - second < WINDOW_S for second in changed)
            for status in (*warn, Status.ERR, Status.REWIND, Status.STALL):
                if is_true(status, number, since_gap(seen[: at + 1]), err_age_s):
                    assert max(state.evaluation.status, waits or Status.OK) >= status


@given(HISTORIES, st.sampled_from([None, 25]))
@example(
    [[Step(1, 5, 1, 1), Step(1, 5, 0, -1), Step(6, 5, 3, 1), Step(2, 5, 0, 0), Step(8, 5, 0, 1)]], None
)  # held, and late
@examples(60)
def test_every_change_can_be_checked_in_the_chart(history: list[list[Step]], err_age_s: int | None) -> None:
    """A bad status begins when the chart shows it, or has in the last window, and ends a window after that.

    WARN begins if the group was late for a window and the lag does not fall, or if the group is bad.
    """
    seen = judged(history, replace(RULES, err_age_s=err_age_s))
    for at in range(1, len(seen)):
        before, now = seen[at - 1 : at + 1]
        in_window = [end for end in range(at + 1) if seen[end].second > now.second - WINDOW_S]
        for number, state in now.partitions.items():
            was, status = before.partitions[number].evaluation.status, state.evaluation.status

            charts = [seen[: end + 1] for end in in_window]
            if status > max(was, Status.NOTFOUND):
                assert any(is_true(status, number, chart, err_age_s) for chart in charts)
            elif status < was:
                assert not any(is_true(was, number, since_gap(chart), err_age_s) for chart in charts)
            if status is Status.WARN and waiting(state) is None:
                group_was = before.group.evaluation.status
                begins = was is Status.OK and group_was is Status.OK
                assert_warning(state, number, seen[: at + 1], begins=begins, is_bad=group_was > Status.NOTFOUND)


def assert_warning(state: PartitionState, number: int, seen: list[Seen], *, begins: bool, is_bad: bool) -> None:
    """Compare the numbers of a reason with the chart. If the status is held, they are those of now.

    If it is late now, too, it is held only if the group was not bad, as this status had to wait, and the lag falls.
    """
    is_held, reason = state.evaluation.last_ms is not None, state.evaluation.reason
    if not is_true(Status.WARN, number, seen, None):
        assert is_held
        (lag,) = re.findall(r"^It was WARN in the last \d+ s\. Now: (?:The lag is )?(\d+)", reason)
        assert int(lag) == state.lag
        return
    seconds, first, last = map(int, re.findall(r"in (\d+) s the lag went from (\d+) to (\d+)\.", reason)[0])
    known = [one for one in seen if one.second <= seen[-1].second - seconds]
    assert (known[-1].partitions[number].lag, state.lag) == (first, last)
    is_fast = (first - last) * 3600 >= last * seconds
    if is_held:
        assert is_fast
        assert not is_bad
    elif begins:
        window = [one for one in seen if one.second > seen[-1].second - WINDOW_S]
        earlier = [one for one in seen if one.second <= seen[-1].second - WINDOW_S]
        assert all(any(one.late(number) for number in one.partitions) for one in (earlier[-1], *window))
        assert not is_fast


@pytest.mark.parametrize("is_read", [True, False])
def test_a_group_is_late_until_all_of_it_was_read(*, is_read: bool) -> None:
    """If it was not late for a moment, it becomes a WARN a window later. A round that did not read it tells nothing."""
    entered_warn, rounds = [], Rounds(RULES)
    for second in range(0, 120, 5):
        caught_up = group("g", (1000 + second if second == 40 else 980 + second, 1000 + second))
        partly = replace(group("g"), unread=frozenset({("orders", 0)}))
        rounds.points(round_of(caught_up if is_read or second != 40 else partly), T0 + second * 1000)
        if rounds.states[0].evaluation.status is Status.WARN:
            entered_warn.append(second)
    assert entered_warn[0] == (85 if is_read else 55)


class Trouble(NamedTuple):
    """How a group is stuck or far behind: its offsets at a second, and the seconds between rounds."""

    offsets: Callable[[int], list[tuple[int, int]]]
    every_s: int = 5
    rules: Rules = Rules()


def in_turn(second: int) -> list[tuple[int, int]]:
    """Return two partitions, one of which always falls behind for 120 s and catches up within 10 s."""
    times = [(second + phase) % 180 for phase in (0, 90)]
    waiting = [50 * min(at, 120) if at < 120 else max(0, 600 * (130 - at)) for at in times]
    return [(50 * second + 5000 - one, 50 * second + 5000) for one in waiting]


TROUBLES = {
    "two consumers commit in turn": Trouble(lambda s: [(1000 + s // 10 % 2 * 100, 1100 + 50 * s)], every_s=10),
    "about as old as --err-age": Trouble(lambda s: [(max(0, (s - 57) // 10 * 100), 10 * s)], rules=Rules(err_age_s=60)),
    "a commit each 70 s": Trouble(lambda s: [(1000 + s // 70 * 700, 1100 + 10 * s)]),
    "slow rounds": Trouble(lambda s: [(1000 + 5 * s, 1000 + 50 * s)], every_s=95),
    "rounds longer than a window": Trouble(lambda s: [(1000 + 5 * s, 1000 + 50 * s)], every_s=200),
    "hardly any progress": Trouble(lambda s: [(1000 + s // 50, 101_000)], every_s=10),
    "partitions late in turn": Trouble(in_turn),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_group_in_trouble_stays_bad(name: str) -> None:
    """Once it is bad, it does not change for hours, so that an alert fires and does not end."""
    offsets, every_s, rules = TROUBLES[name]
    rounds, found = Rounds(rules), []
    for second in range(0, 7200, every_s):
        rounds.points(round_of(group("g", *offsets(second))), T0 + second * 1000)
        found.append((second, rounds.states[0].evaluation.status))
    (_, begin), (second, bad) = entered(found)
    assert (begin, bad > Status.NOTFOUND) == (Status.OK, True)
    assert second <= 4 * max(every_s, 120)


@given(HISTORIES)
@examples(40)
def test_nothing_contradicts_a_status(history: list[list[Step]]) -> None:
    """A group is as bad as its worst partition, which its reason names, and says `never` only if it is not OK."""
    for one in judged(history):
        status, reason, *_ = one.group.evaluation
        statuses = [state.evaluation.status for state in one.partitions.values()]
        assert status is (Status.ERR if max(statuses) > Status.WARN else max(statuses))
        names = [f"{state.evaluation.status.name} in {state.name}" for state in one.partitions.values()]
        named = [(f"{name}:", f"{name} (") for name in names]
        if status is not Status.OK:
            assert any(reason.startswith(named[at]) for at, found in enumerate(statuses) if found is max(statuses))
        if one.group.catch_up.drain == "never at this rate":
            assert status is not Status.OK
        if one.group.catch_up.drain == "now":
            assert not any(one.late(number) for number in one.partitions)
