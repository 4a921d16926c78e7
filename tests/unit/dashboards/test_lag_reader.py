"""What is read back from the store agrees with what the collector evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.lag import Rounds, group, round_of
from support.stores import Points
from tallystream_aggregator.sinks.base import Point, Series, is_own
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.lag.catch_up import NOW, UNKNOWN, Backlog, CatchUp, time_to_catch_up
from tallystream_dashboards.lag.offsets import RoundOffsets
from tallystream_dashboards.lag.reader import read_group, read_groups
from tallystream_dashboards.lag.samples import Rates
from tallystream_dashboards.lag.state import GroupState, PartitionState
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.storage import GROUPS

T0 = 1_700_000_100_000
"""The first round, epoch ms: the beginning of a slot of five minutes."""
RULES = Rules(window_s=100)
State = TypeVar("State", GroupState, PartitionState)

SCHEDULES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.sampled_from([True, True, True, False])),
    min_size=1,
    max_size=120,
)  # the records produced and consumed in each round, whether the group has a member, and whether it is read


def collected(*rounds: tuple[int, RoundOffsets]) -> GroupState:
    """Return the worst group after rounds at these seconds."""
    collector = Rounds(RULES)
    for second, offsets in rounds:
        collector.points(offsets, second * 1000)
    return collector.states[0]


@given(SCHEDULES)
@examples(60)
def test_the_state_of_every_round_is_read(schedule: list[tuple[int, int, bool, bool]]) -> None:
    """Unchanged points are not written. The others give each group and partition of a round as the collector judged it.

    A store takes none of their values for somebody else's. One group is deleted in the middle, one partition has no
    commit, and in some rounds a group is not read.
    """
    rounds, store = Rounds(RULES), Points()
    end = committed = 0
    judged = []
    for number, (produced, consumed, member, is_read) in enumerate(schedule):
        end += produced
        committed = min(end, committed + consumed)
        known = group("g", (committed, end), (None, 5), members=int(member))
        groups = [known if is_read else replace(known, partitions=(), complete=False)]
        groups += [group("deleted", (3, end + 3), topic="t")] if number < len(schedule) / 2 else []
        store.points += rounds.points(round_of(*groups), T0 + number * 3000)
        judged.append(rounds.states)
    assert all(is_own(name, value) for point in store.points for name, value in point.fields.items())
    for number, states in enumerate(judged):
        at_ms = T0 + number * 3000
        assert [one.group for one in read_groups(store, at_ms=at_ms)] == [one.group for one in states]
        for state in states:
            read = read_group(store, state.group, at_ms=at_ms)
            assert read is not None
            assert_the_same(read, state)
            for one, other in zip(read.partitions, state.partitions, strict=True):
                # Its rates change for as long as the window after its last record, and are not written for that alone.
                assert_the_same(replace(one, rates=None), replace(other, rates=None))


class RoundBetweenReads(Points):
    """A store in memory that gets another round after each read of groups."""

    later: list[Point]

    def read(self, measurement: str, fields: Sequence[str], **options: Any) -> list[Series]:
        """Return the points as a store returns them."""
        found = super().read(measurement, fields, **options)
        if measurement == GROUPS:
            self.points += self.later
        return found


def test_a_group_and_its_partitions_are_of_one_round() -> None:
    """A round that is written while a group is read does not make its partitions newer than the group."""
    rounds, store = Rounds(RULES), RoundBetweenReads()
    store.points = rounds.points(round_of(group("g", (5, 9))), T0)
    store.later = rounds.points(round_of(group("g", (9, 9))), T0 + 2000)
    read = read_group(store, "g", at_ms=T0 + 3000)
    assert read is not None
    assert (read.lag, [one.lag for one in read.partitions]) == (4, [4])


def assert_the_same(read: State, judged: State) -> None:
    """Compare all but a reason, which has the seconds of the round in which it was written."""
    known = judged.time_lag is not None and read.time_lag is not None
    assert read.time_lag == pytest.approx(judged.time_lag) if known else read.time_lag == judged.time_lag
    assert read.evaluation.status is judged.evaluation.status
    same: dict[str, Any] = {"time_lag": None, "evaluation": judged.evaluation}
    if isinstance(judged, GroupState):
        same |= {"partitions": ()}
    elif judged.stale:
        same |= {"start": None, "end": None, "committed": None}
    assert ("not read" in read.evaluation.reason) == ("not read" in judged.evaluation.reason)
    assert replace(read, **same) == replace(judged, **same)


def test_a_group_is_evaluated_by_all_partitions() -> None:
    """Lags and rates are added, the largest time lag and the worst status count, and the rates give the range."""
    rounds = [(s, round_of(group("g", (s * 10, 500 + s * 5), (s * 5, s * 5)))) for s in range(101)]
    caught_up, middle = collected(*rounds), collected(*rounds[:51])
    assert (caught_up.lag, caught_up.rates, caught_up.catch_up) == (0, Rates(10.0, 15.0), CatchUp("now", 0.0, 0.0))
    assert (middle.lag, middle.max_lag, middle.catch_up) == (250, 250, CatchUp("50 s", 50.0, 50.0))


def test_a_commit_that_stays_past_the_end_is_a_warning() -> None:
    """After a window without a commit, a group is WARN: it reads nothing of the topic.

    It would be after half a window (--stop-after), but the partition became NOTFOUND, and changes once a window. It is
    OK a window after its last commit past the end.
    """
    rounds, seen = Rounds(RULES), {}
    for second in range(0, 250, 5):
        end = 50 if second < 20 else 5 + second // 10
        committed = min(50, end) if second >= 150 else 50
        rounds.points(round_of(group("g", (committed, end), (7, 7))), T0 + second * 1000)
        seen[second] = rounds.states[0].evaluation
    assert {second: one.status for second, one in seen.items() if second in (15, 20, 115, 120, 240, 245)} == {
        15: Status.OK,
        20: Status.OK,
        115: Status.OK,
        120: Status.WARN,
        240: Status.WARN,
        245: Status.OK,
    }
    assert seen[120].reason == (
        "WARN in orders/0 (1 of 2 partitions): The committed offset is past the end, as after the topic was recreated, "
        "and has not moved for 100 s. Nothing valid is committed in 1 of 2 partitions, with 17 records."
    )


@pytest.mark.parametrize("what", ["group", "topic", "offset"])
def test_partitions_agree_with_a_group_that_was_created_again(store: LocalStore, reader: LocalStore, what: str) -> None:
    """The collector forgets what was deleted, but the store has its samples. Partitions have the collector's status."""
    rounds, other = Rounds(RULES), group("other", (1, 1))
    without = {"group": (), "topic": (group("g"),), "offset": (group("g", (None, 90)),)}[what]
    for second in range(0, 160, 2):
        again = (group("g", (10 + second, 90 + second)),)
        groups = (group("g", (50, 90)),) if second < 40 else without if second < 46 else again
        store.write(rounds.points(round_of(*groups, other), T0 + second * 1000))
    (state,) = [one for one in rounds.states if one.group == "g"]
    assert state.evaluation.status is Status.OK
    detailed = read_group(reader, "g", at_ms=T0 + 158_000)
    assert detailed is not None
    (partition,) = detailed.partitions
    assert (partition.evaluation.status, detailed.evaluation.status) == (Status.OK, Status.OK)


def test_a_gone_group_is_forgotten_after_a_week_with_restarts(store: LocalStore, reader: LocalStore) -> None:
    """It was deleted while no collector ran: the next one knows it from the store, and asks for it by name.

    It has no time lag, so no rule of Grafana fires. A new collector does not extend its week.
    """
    rounds, other = Rounds(RULES), group("other", (1, 1))
    for second in range(3):
        store.write(rounds.points(round_of(group("g", (1, 4)), other), T0 + second * 1000))
    for day in (1, 6, 8):
        rounds, now_ms = Rounds(RULES), T0 + day * 86_400_000
        rounds.load(reader, now_ms)
        store.write(rounds.points(round_of(other), now_ms))
        states = {one.group: one for one in read_groups(reader, at_ms=now_ms)}
        assert states.keys() == {"g", "other"} if day < 8 else {"other"}
        assert [one.gone for one in rounds.states if one.group == "g"] == ([True] if day < 8 else [])
        if day < 8:
            assert (states["g"].seen_ms, states["g"].lag, states["g"].time_lag) == (T0 + 2000, 3, None)
            reason = "The group is no longer on the broker; when it was last seen its lag was 3."
            assert states["g"].evaluation.reason == reason
    assert not reader.read(GROUPS, ["seconds"], start_ms=T0 + 3000, end_ms=now_ms, tags={"group": "g"})


@pytest.mark.parametrize("second", [110, 200, 400])
def test_a_group_without_partitions_is_read(store: LocalStore, reader: LocalStore, second: int) -> None:
    """A group whose only topic was deleted is still there, without partitions."""
    rounds, other = Rounds(RULES), group("other", (1, 1))
    for at in range(0, second + 1, 10):
        groups = (group("g", (5, 9), topic="deleted") if at < 100 else group("g"), other)
        store.write(rounds.points(round_of(*groups), T0 + at * 1000))
    at_ms = T0 + second * 1000
    found = read_groups(reader, at_ms=at_ms)
    assert [(one.group, one.status_name) for one in found] == [("g", "NOTFOUND"), ("other", "OK")]
    detailed = read_group(reader, "g", at_ms=at_ms)
    assert detailed is not None
    assert (detailed.evaluation.reason, detailed.partitions) == ("The group has no partitions.", ())


def drain(lag: int, *rates: tuple[float, float], ok: bool = False) -> CatchUp:
    """Return the time for one partition whose window, and newer half of it, has these rates."""
    window, half = (Rates(*one) for one in rates)
    return time_to_catch_up([Backlog(lag, (window, half))], ok=ok)


def test_time_to_catch_up() -> None:
    """A group catches up in a range of time, after at least some time, now, or never, or it is not known."""
    assert drain(1000, (5, 15), (5, 10)) == CatchUp("1 min 40 s to 3 min 20 s", 100.0, 200.0)
    assert drain(600, (5, 15), (5.06, 15)).drain == "1 min"
    assert drain(10, (5, 15), (5, 15)) == CatchUp("1 s", 1.0, 1.0)
    assert drain(1, (5, 15), (5, 10)) == CatchUp("< 1 s", 0.1, 0.2)
    assert drain(600, (5, 15), (5, 5)) == CatchUp("≥ 1 min", 60.0, None)
    assert drain(100, (5, 4.9), (5, 5)).drain == "never at this rate"
    assert drain(100, (0, 0), (0, 0)).drain == "never at this rate"
    assert drain(20_000, (9, 1), (0.3, 0.1 + 0.2)).drain == "never at this rate", "rounding"
    assert drain(100, (5, 4.9), (5, 5), ok=True) == UNKNOWN, "it may be early to say so"
    assert time_to_catch_up([Backlog(9, (Rates(5, 6), None))], ok=False) == UNKNOWN
    assert time_to_catch_up([], ok=True) == NOW


def test_a_group_catches_up_with_its_slowest_partition() -> None:
    """A partition that catches up soon does not hide one that never does."""
    slow, fast = (Rates(5, 6), Rates(5, 6)), (Rates(5, 500), Rates(5, 500))
    assert time_to_catch_up([Backlog(60, slow), Backlog(600, fast)], ok=False).drain == "1 min"
    assert time_to_catch_up([Backlog(9, (Rates(5, 4), Rates(5, 4))), Backlog(600, fast)], ok=False).drain_low is None


@given(st.integers(1, 10**12), st.tuples(*[st.builds(Rates, st.floats(0, 1e6), st.floats(0, 1e6))] * 2))
def test_a_range_is_positive_and_in_order(lag: int, rates: tuple[Rates, Rates]) -> None:
    """The lower time is above 0 and not above the higher one."""
    _, low_s, high_s = time_to_catch_up([Backlog(lag, rates)], ok=False)
    assert low_s is None or low_s > 0
    assert high_s is None or (low_s is not None and high_s >= low_s)
