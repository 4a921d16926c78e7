"""Why a group does not read on: deleted records, a topic that it left, or an open transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.lag import Rounds, group, round_of
from tallystream_dashboards.lag.reader import read_group
from tallystream_dashboards.lag.status import Rules, Status

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.sqlite.sink import LocalStore
    from tallystream_dashboards.lag.offsets import GroupOffsets
    from tallystream_dashboards.lag.state import GroupState, PartitionState

T0 = 1_700_000_100_000
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


def test_a_group_that_works_but_loses_records_is_a_warning() -> None:
    """It is too slow for the topic's retention, although it makes progress."""
    rounds = Rounds(RULES)
    for second in range(0, 101, 5):
        rounds.points(round_of(changed(group("g", (second, 500 + second % 10)), start=second + 3)), T0 + second * 1000)
    partition = only(rounds.states[0])
    assert partition.evaluation.status is Status.WARN
    assert partition.evaluation.reason.startswith("3 offsets were deleted before they were read. The lag is 4")


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


def test_stored_partitions_have_the_collectors_reasons(store: LocalStore, reader: LocalStore) -> None:
    """Whoever reads the store sees the reasons that only the broker could tell, for groups and partitions."""
    rounds = Rounds(RULES)
    rounds.open_from = {("orders", 0): 12}
    for second in range(0, 101, 5):
        offsets = changed(group("g", (4, 20), members=0), start=10)
        store.write(rounds.points(round_of(offsets), T0 + second * 1000))
    detailed = read_group(reader, "g", at_ms=T0 + 100_000)
    assert detailed is not None
    assert (only(detailed).evaluation.status, detailed.evaluation.status) == (Status.STOP, Status.ERR)
    for reason in (only(detailed).evaluation.reason, detailed.evaluation.reason):
        assert "6 offsets were deleted before they were read. 10 records wait" in reason
        assert "A transaction is open from offset 12 on" in reason
