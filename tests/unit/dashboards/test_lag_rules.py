"""What decides about the status of a partition besides its samples, and which old rounds are deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lag import Rounds, group, round_of
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point
from tallystream_dashboards.lag.catch_up import UNKNOWN
from tallystream_dashboards.lag.collector.answers import STABLE, GroupAnswers, group_offsets
from tallystream_dashboards.lag.collector.recorder import spans
from tallystream_dashboards.lag.offsets import PartitionOffsets
from tallystream_dashboards.lag.samples import OffsetSample
from tallystream_dashboards.lag.state import PartitionState, group_state
from tallystream_dashboards.lag.status import Evaluation, Late, Rules, Status, evaluate_partition
from tallystream_dashboards.lag.storage import ALL, ENDS, GROUPS, LAG, RECORDS, ROUNDS, SLOT_MS
from tallystream_dashboards.lag.time_lag import EndOffsetHistory, TimeLag

NOW = 1_000_000
RULES = Rules(window_s=100, allowed_lag=3, err_age_s=60)


def evaluation(offsets: PartitionOffsets, *, age_s: float = 0, late: Late | None = None, **known: int) -> Evaluation:
    """Return the evaluation of a partition whose offsets are the same for 20 s."""
    samples = [OffsetSample(NOW - ago_ms, offsets.committed or 0, offsets.end) for ago_ms in (20_000, 10_000, 0)]
    return evaluate_partition(
        offsets,
        samples,
        TimeLag(age_s),
        members=1,
        now_ms=NOW,
        rules=RULES,
        late=late,
        open_from=known.get("open_from"),
    )


def test_a_lag_within_the_allowed_one_has_the_age_of_its_records() -> None:
    """Only offsets that were deleted do not wait any more, and have no age."""
    assert evaluation(PartitionOffsets("t", 0, 0, 9, 9)) == Evaluation(Status.OK, "The lag is 0.")
    old = "The oldest unconsumed record is 61 s old, over 60 s."
    assert evaluation(PartitionOffsets("t", 0, 0, 9, 7), age_s=60).status is Status.OK
    assert evaluation(PartitionOffsets("t", 0, 0, 9, 7), age_s=61) == Evaluation(Status.ERR, old)
    deleted = "5 offsets were deleted before they were read. 3 other records wait."
    assert evaluation(PartitionOffsets("t", 0, 6, 9, 1), age_s=61) == Evaluation(Status.WARN, deleted)
    one = "1 offset was deleted before it was read. 1 other record waits."
    assert evaluation(PartitionOffsets("t", 0, 8, 9, 7), age_s=61).reason == one
    more = evaluation(PartitionOffsets("t", 0, 5, 9, 1), age_s=61)
    assert more == Evaluation(Status.ERR, f"4 offsets were deleted before they were read. {old}")


@pytest.mark.parametrize("waiting", [3, 4])
def test_a_group_that_left_a_topic_is_warn_if_records_wait(waiting: int) -> None:
    """That is so as soon as more wait than are allowed, before it counts as stopped."""
    found = evaluation(PartitionOffsets("t", 0, 0, 9, 9 - waiting, left=True))
    assert found.status is (Status.WARN if waiting > RULES.allowed_lag else Status.OK)


@pytest.mark.parametrize(
    ("state", "assigned", "left"),
    [
        (STABLE, (frozenset({("a", 0)}), frozenset({("a", 1)})), {"b"}),
        (STABLE, (frozenset(),), set()),
        (STABLE, None, set()),
        ("PreparingRebalance", (frozenset({("a", 0)}),), set()),
    ],
)
def test_a_stable_group_left_the_topics_that_no_member_has(
    state: str, assigned: tuple[frozenset[tuple[str, int]], ...] | None, left: set[str]
) -> None:
    """While members divide the partitions among them, or none is known to have one, the group has left no topic."""
    offsets = {("a", 0): 1, ("a", 1): 2, ("b", 0): 3}
    found = group_offsets(
        "g",
        GroupAnswers(assigned, state, offsets, complete=True),
        {"a": [0, 1], "b": [0]},
        dict.fromkeys(offsets, (0, 9)),
    )
    assert {one.topic for one in found.partitions if one.left} == left
    assert [one.committed for one in found.partitions] == [1, 2, 3]
    assert (found.members, found.complete) == (None if assigned is None else len(assigned), assigned is not None)


def test_records_of_partitions_without_a_commit_are_counted() -> None:
    """They are those that the log still has. The reason of the group's status names them."""
    committed = PartitionState("t", 0, Evaluation(Status.OK, "The lag is 2."), start=0, end=9, committed=7, lag=2)
    nothing = PartitionState("t", 1, Evaluation(Status.NOTFOUND, "Nothing."), start=10, end=25)
    found = group_state("g", [committed, nothing], [], seen_ms=NOW)
    assert (found.lag, found.max_lag, found.partition_count) == (2, 2, 2)
    assert (found.unknown_partitions, found.uncommitted_records) == (1, 15)
    wanted = "The lag is 2. Nothing valid is committed in 1 of 2 partitions, with 15 records."
    assert found.evaluation == Evaluation(Status.OK, wanted)


@given(st.lists(st.integers(0, 20), unique=True), st.integers(0, 25))
def test_of_old_rounds_the_first_of_each_slot_is_kept(thirds: list[int], before: int) -> None:
    """All others of a slot that is over are deleted, and none of a slot that is not."""
    times = sorted(third * SLOT_MS // 3 for third in thirds)
    before_ms = before * SLOT_MS // 3
    found = spans(times, before_ms=before_ms)
    deleted = [ts_ms for ts_ms in times if any(begin <= ts_ms < end for begin, end in found)]
    slots = [ts_ms // SLOT_MS for ts_ms in times]
    wanted = [
        ts_ms
        for place, (ts_ms, slot) in enumerate(zip(times, slots, strict=True))
        if slot in slots[:place] and (slot + 1) * SLOT_MS <= before_ms
    ]
    assert deleted == wanted
    assert all(end % SLOT_MS == 0 and end - begin < SLOT_MS for begin, end in found)


def test_what_does_not_change_is_written_twice_a_minute() -> None:
    """In the first round of a slot all is written, so that it can stand for the slot. A change is written at once."""
    rounds, begin_ms = Rounds(), 100 * SLOT_MS
    written: dict[str, list[int]] = {name: [] for name in ALL}
    for second in range(0, 600, 5):
        offsets, ts_ms = group("g", (7 if second < 400 else 8, 9)), begin_ms + second * 1000
        for point in rounds.points(round_of(offsets), ts_ms, [Point(RECORDS, {"app": "a"}, {"lost": 3}, ts_ms)]):
            written[point.measurement].append((point.ts_ms - begin_ms) // 1000)
    assert written[ENDS] == written[RECORDS] == list(range(0, 600, 30))
    assert written[ROUNDS] == list(range(0, 600, 5))
    for measurement in (LAG, GROUPS):
        assert [second for second in written[measurement] if 300 <= second < 395] == [300, 330, 360, 390]
        assert {395, 400} <= set(written[measurement])


def test_the_partitions_of_a_topic_that_was_not_read_are_unread() -> None:
    """So are those without bounds or with an error. All others have their offsets."""
    answers = GroupAnswers((), "", {("a", 0): 1, ("b", 0): 2, ("b", 1): 3}, frozenset({("a", 1)}), complete=True)
    found = group_offsets("g", answers, {"a": [0, 1, 2], "b": None}, {("a", 0): (0, 9), ("a", 1): (0, 9)})
    assert [one.id for one in found.partitions] == [("a", 0)]
    assert found.unread == {("a", 1), ("a", 2), ("b", 0), ("b", 1)}
    assert not found.complete


@pytest.mark.parametrize(
    ("option", "within", "beyond"),
    [
        ("window_s", (1, 86_400), (0.9, 86_401)),
        ("allowed_lag", (0, 10), (-1,)),
        ("stop_after_s", (0.1, 119.9), (0, 120)),
        ("warn_age_s", (0, 0.5), (-0.1, float("nan"))),
        ("err_age_s", (None, 0.1), (0, -1, float("nan"))),
    ],
)
def test_rules_have_bounds(option: str, within: tuple[Any, ...], beyond: tuple[Any, ...]) -> None:
    """The bounds themselves are allowed where the message says so."""
    for value in within:
        assert getattr(Rules(**{option: value}), option) == value
    for value in beyond:
        with pytest.raises(ConfigError):
            Rules(**{option: value})


def test_ages_are_known_for_an_hour() -> None:
    """That of an older record is a lower bound."""
    history = EndOffsetHistory()
    for number in range(720):
        history.add(number * 10_000, number)
    found = history.time_lag(0, now_ms=7_190_000)
    assert found == TimeLag(3610, exact=False)
    assert history.time_lag(519, now_ms=7_190_000) == TimeLag(2000)


def test_a_long_history_keeps_its_precision() -> None:
    """Of steady growth every age is exact, although only ten observations are kept."""
    history = EndOffsetHistory()
    for number in range(300):
        history.add(number * 1000, number * 10, limit=10)
        assert len(history) <= 10
    for committed in range(0, 2990, 5):
        found, age_s = history.time_lag(committed, now_ms=299_000), (2990 - committed) / 10
        assert found is not None
        assert found == TimeLag(age_s) if found.exact else found.seconds <= age_s


def test_a_group_that_was_read_in_part_keeps_what_is_known_of_its_members() -> None:
    """They are those of the last description. A stale partition makes the time to catch up unknown."""
    rounds, known = Rounds(), group("g", (9, 9), members=2)
    partly = replace(known, complete=False)
    for offsets, members in ((known, 2), (replace(partly, members=None, state=""), 2), (replace(partly, members=3), 3)):
        rounds.points(round_of(offsets), NOW)
        assert [one.members for one in rounds.states] == [members]
    ok = PartitionState("t", 0, Evaluation(Status.OK, "The lag is 0."), lag=0)
    assert group_state("g", [ok], [], seen_ms=NOW).catch_up.drain == "now"
    assert group_state("g", [ok, replace(ok, partition=1, stale=True)], [], seen_ms=NOW).catch_up == UNKNOWN
