"""What is read back from the store agrees with what the collector evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.lag import Rounds, group, round_of
from tallystream_aggregator.sinks.base import Point, Series
from tallystream_dashboards.lag.catch_up import Between, CatchUp, time_to_catch_up
from tallystream_dashboards.lag.formatting import catches_up_in
from tallystream_dashboards.lag.reader import partitions, read_group, read_groups
from tallystream_dashboards.lag.samples import Rates
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.storage import GROUPS, LAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.sqlite.reader import LocalReader
    from tallystream_aggregator.sinks.sqlite.sink import LocalStore
    from tallystream_dashboards.lag.offsets import RoundOffsets
    from tallystream_dashboards.lag.state import GroupState

T0 = 1_700_000_100_000
"""The first round, epoch ms: the beginning of a slot of five minutes."""
RULES = Rules(window_s=100)

SCHEDULES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=120
)  # the records produced and consumed in each round, and whether the group has a member


def series(points: Sequence[Point]) -> list[Series]:
    """Return the partitions' points as a store returns them."""
    fields: dict[tuple[tuple[tuple[str, str], ...], str], dict[int, object]] = {}
    for point in sorted(points, key=lambda one: one.ts_ms):
        for name, value in point.fields.items() if point.measurement == LAG else ():
            fields.setdefault((tuple(point.tags.items()), name), {})[point.ts_ms] = value
    return [
        Series(LAG, dict(tags), name, list(values), list(values.values()))  # type: ignore[arg-type]
        for (tags, name), values in fields.items()
    ]


def collected(*rounds: tuple[int, RoundOffsets]) -> GroupState:
    """Return the worst group after rounds at these seconds."""
    collector = Rounds(RULES)
    for second, offsets in rounds:
        collector.points(offsets, second * 1000)
    return collector.states[0]


@given(SCHEDULES)
@examples(60)
def test_points_that_are_left_out_change_nothing(schedule: list[tuple[int, int, bool]]) -> None:
    """Unchanged points are not written. The others give the partition of every round, as the collector judged it."""
    rounds, points, states = Rounds(RULES), [], []
    end = committed = 0
    for number, (produced, consumed, member) in enumerate(schedule):
        end += produced
        committed = min(end, committed + consumed)
        ts_ms = T0 + number * 3000
        points += rounds.points(round_of(group("g", (committed, end), members=int(member))), ts_ms)
        states.append((ts_ms, rounds.states[0].partitions[0]))
    for ts_ms, state in states:
        ((read,),) = partitions(series([one for one in points if one.ts_ms <= ts_ms]), now_ms=ts_ms).values()
        assert (read.lag, read.committed, read.end) == (state.lag, state.committed, state.end)
        assert read.evaluation.status is state.evaluation.status
        assert (read.time_lag is None) == (state.time_lag is None)
        if state.time_lag is not None and read.time_lag is not None:
            assert read.time_lag.seconds == pytest.approx(state.time_lag.seconds)


def test_a_group_is_evaluated_by_all_partitions() -> None:
    """Lags and rates are added, the largest time lag and the worst status count, and the rates give the range."""
    rounds = [(s, round_of(group("g", (s * 10, 500 + s * 5), (s * 5, s * 5)))) for s in range(101)]
    caught_up, middle = collected(*rounds), collected(*rounds[:51])
    assert (caught_up.lag, caught_up.rates, caught_up.catch_up) == (0, Rates(10.0, 15.0), CatchUp.NOW)
    assert (middle.lag, middle.catch_up) == (250, Between(50.0, 50.0))


def test_a_commit_that_stays_past_the_end_is_a_warning() -> None:
    """After half a window (--stop-after) without a commit, a group is WARN: it reads nothing of the topic."""
    rounds, seen = Rounds(RULES), {}
    for second in range(0, 200, 5):
        end = 50 if second < 20 else 5 + second // 10
        committed = min(50, end) if second >= 150 else 50
        rounds.points(round_of(group("g", (committed, end), (7, 7))), T0 + second * 1000)
        seen[second] = rounds.states[0].evaluation
    assert {second: one.status for second, one in seen.items() if second in (15, 20, 70, 75, 145, 150)} == {
        15: Status.OK,
        20: Status.OK,
        70: Status.OK,
        75: Status.WARN,
        145: Status.WARN,
        150: Status.OK,
    }
    assert seen[75].reason == (
        "WARN in orders/0 (1 of 2 partitions): The committed offset is past the end, as after the topic was recreated, "
        "and has not moved for 55 s."
    )


def test_the_store_returns_what_the_collector_evaluated(store: LocalStore, reader: LocalReader) -> None:
    """Groups and their partitions are read for now and for a past moment. A deleted group is marked."""
    rounds = Rounds(RULES)
    for number in range(61):
        groups = [group("well", (number, number)), group("slow", (number, number * 3), (None, 5))]
        groups += [group("gone", (1, 4))] if number < 30 else []
        store.write(rounds.points(round_of(*groups), T0 + number * 5000))
    now_ms = T0 + 300_000
    slow, gone, well = read_groups(reader, at_ms=now_ms)
    assert [one.group for one in (slow, gone, well)] == ["slow", "gone", "well"]
    evaluated = next(state for state in rounds.states if state.group == "slow")
    assert (slow.evaluation, slow.lag, slow.uncommitted_records) == (evaluated.evaluation, 120, 5)
    assert (slow.time_lag, slow.catch_up, slow.rates) == (evaluated.time_lag, evaluated.catch_up, evaluated.rates)
    assert (gone.gone, gone.lag, gone.seen_ms) == (True, 3, T0 + 145_000)
    earlier = {state.group: state for state in read_groups(reader, at_ms=T0 + 100_000)}
    assert (earlier["gone"].gone, earlier["slow"].lag) == (False, 40)
    detailed = read_group(reader, "slow", at_ms=now_ms)
    assert detailed is not None
    assert [(one.name, one.lag) for one in detailed.partitions] == [("orders/0", 120), ("orders/1", None)]
    assert detailed.partitions[0].time_lag == evaluated.time_lag
    assert detailed.partitions == evaluated.partitions
    assert read_group(reader, "nobody", at_ms=now_ms) is None
    before = read_group(reader, "gone", at_ms=now_ms)
    assert before is not None
    assert [(one.name, one.lag) for one in before.partitions] == [("orders/0", 3)]


@pytest.mark.parametrize("speed", [0, 3, 2, 4])
def test_the_time_to_catch_up_is_read_back(store: LocalStore, reader: LocalReader, speed: int) -> None:
    """Every kind of time to catch up is the same after it was stored: never, steady, and a range."""
    rounds = Rounds(RULES)
    for second in range(40):
        store.write(rounds.points(round_of(group("g", (second * speed, 900 + second * 3))), T0 + second * 1000))
    (state,) = read_groups(reader, at_ms=T0 + 39_000)
    assert state.catch_up == rounds.states[0].catch_up != CatchUp.UNKNOWN
    (text,) = reader.read(GROUPS, ["drain"], start_ms=T0, end_ms=T0 + 39_001)
    assert text.values[-1] == catches_up_in(state.catch_up), "Grafana shows the stored text"


@pytest.mark.parametrize("what", ["group", "topic", "offset"])
def test_partitions_agree_with_a_group_that_was_created_again(
    store: LocalStore, reader: LocalReader, what: str
) -> None:
    """The collector forgets what was deleted, but the store has its samples. Partitions have the collector's status."""
    rounds, other = Rounds(RULES), group("other", (1, 1))
    without = {"group": (), "topic": (group("g"),), "offset": (group("g", (None, 90)),)}[what]
    for second in range(0, 60, 2):
        groups = (group("g", (50, 90)),) if second < 40 else without if second < 46 else (group("g", (10, 90)),)
        store.write(rounds.points(round_of(*groups, other), T0 + second * 1000))
    (state,) = [one for one in rounds.states if one.group == "g"]
    assert state.evaluation.status is Status.OK
    detailed = read_group(reader, "g", at_ms=T0 + 58_000)
    assert detailed is not None
    (partition,) = detailed.partitions
    assert (partition.evaluation.status, detailed.evaluation.status) == (Status.OK, Status.OK)


def test_a_group_deleted_while_no_collector_ran_is_gone(store: LocalStore, reader: LocalReader) -> None:
    """The next collector knows it from the store, and asks for it by name."""
    store.write(Rounds().points(round_of(group("g", (1, 4)), group("other", (1, 1))), T0))
    rounds = Rounds()
    rounds.load(reader, T0 + 3_600_000)
    store.write(rounds.points(round_of(group("other", (1, 1))), T0 + 3_600_000))
    states = read_groups(reader, at_ms=T0 + 3_600_000)
    assert [(one.group, one.gone) for one in states] == [("g", True), ("other", False)]
    assert states[0].evaluation.reason == "The group is no longer on the broker; when it was last seen its lag was 3."


def test_a_gone_group_is_forgotten_after_a_week_with_restarts(store: LocalStore, reader: LocalReader) -> None:
    """It has no time lag, so no rule of Grafana fires. A new collector does not extend its week."""
    rounds, other = Rounds(RULES), group("other", (1, 1))
    for second in range(3):
        store.write(rounds.points(round_of(group("g", (1, 4)), other), T0 + second * 1000))
    store.write(rounds.points(round_of(other), T0 + 3000))
    for day in (1, 6, 8):
        rounds, now_ms = Rounds(RULES), T0 + day * 86_400_000
        rounds.load(reader, now_ms)
        store.write(rounds.points(round_of(other), now_ms))
        states = {one.group: one for one in read_groups(reader, at_ms=now_ms)}
        assert states.keys() == {"g", "other"} if day < 8 else {"other"}
        assert [one.gone for one in rounds.states if one.group == "g"] == ([True] if day < 8 else [])
        if day < 8:
            assert (states["g"].seen_ms, states["g"].lag, states["g"].time_lag) == (T0 + 2000, 3, None)
    assert not reader.read(GROUPS, ["seconds"], start_ms=T0 + 3000, end_ms=now_ms, tags={"group": "g"})


@pytest.mark.parametrize("second", [110, 200, 400])
def test_a_group_without_partitions_is_read(store: LocalStore, reader: LocalReader, second: int) -> None:
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


def test_time_to_catch_up() -> None:
    """A group catches up in a range of time, now, or never, keeps up, or it is not known."""
    assert time_to_catch_up(100, [Rates(5, 15), Rates(5, 10)]) == Between(10.0, 20.0)
    assert time_to_catch_up(100, [Rates(5, 15), Rates(5, 5)]) == Between(10.0, None)
    assert time_to_catch_up(100, [Rates(5, 4.9)]) is CatchUp.NEVER
    assert time_to_catch_up(100, [Rates(0, 0)]) is CatchUp.NEVER
    assert time_to_catch_up(100, [Rates(500, 499), Rates(500, 501)]) is CatchUp.STEADY
    assert time_to_catch_up(33, [Rates(46, 45), Rates(46, 40)]) is CatchUp.STEADY
    assert time_to_catch_up(0, [Rates(5, 5)]) is CatchUp.NOW
    assert time_to_catch_up(20_000, [Rates(9, 1), Rates(0.3, 0.1 + 0.2)]) is CatchUp.NEVER, "equal but for rounding"
    assert time_to_catch_up(9, []) is CatchUp.UNKNOWN


@given(st.integers(1, 10**12), st.lists(st.builds(Rates, st.floats(0, 1e6), st.floats(0, 1e6)), max_size=5))
def test_a_range_is_positive_and_in_order(lag: int, rates: list[Rates]) -> None:
    """The lower time is above 0 and not above the higher one."""
    time = time_to_catch_up(lag, rates)
    if isinstance(time, Between):
        assert time.low_s > 0
        assert time.high_s is None or time.high_s >= time.low_s
