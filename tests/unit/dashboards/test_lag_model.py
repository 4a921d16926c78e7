"""What lag is: arithmetic that never invents a number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystream.dashboards.lag import (
    LAG,
    Behind,
    BeyondEnd,
    GroupLag,
    NothingCommitted,
    Total,
    partition_lag,
    points,
)

OFFSETS = st.integers(0, 2**63 - 1)


@given(OFFSETS, OFFSETS, OFFSETS)
def test_lag_is_end_minus_committed_and_never_negative(start: int, end: int, committed: int) -> None:
    """A commit within the log gives end - committed; one beyond the end gives no number at all."""
    found = partition_lag("t", 0, start=start, end=end, committed=committed)
    if committed <= end:
        assert (found.progress, found.lag) == (Behind(committed, end - committed), end - committed)
    else:
        assert (found.progress, found.lag) == (BeyondEnd(committed), None)


@given(OFFSETS, OFFSETS)
def test_nothing_committed_is_no_number(start: int, end: int) -> None:
    """Without a commit the lag is unknown: neither 0 nor the whole log."""
    found = partition_lag("t", 0, start=start, end=end, committed=None)
    assert (found.progress, found.lag) == (NothingCommitted(), None)


def test_deleted_records_count_as_lag() -> None:
    """Records that retention took before the group read them still count: losing records is no progress."""
    assert partition_lag("t", 0, start=50, end=60, committed=10).lag == 50


def test_a_groups_total_counts_what_is_unknown() -> None:
    """The total adds what is known and says how many partitions are not."""
    group = GroupLag(
        "g",
        (
            partition_lag("t", 0, start=0, end=10, committed=4),
            partition_lag("t", 1, start=0, end=10, committed=None),
            partition_lag("t", 2, start=0, end=10, committed=10),
            partition_lag("t", 3, start=0, end=10, committed=11),
        ),
    )
    assert group.total() == Total(records=6, known=2, unknown=2)


def test_points_carry_only_what_is_known() -> None:
    """A point has `committed` where there is a commit and `lag` where it can be told; offsets are integers."""
    group = GroupLag(
        "g",
        (
            partition_lag("t", 0, start=1, end=10, committed=4),
            partition_lag("t", 1, start=1, end=10, committed=None),
            partition_lag("t", 2, start=1, end=10, committed=11),
        ),
    )
    found = points([group], 77)
    assert {(point.measurement, point.ts_ms) for point in found} == {(LAG, 77)}
    assert [dict(point.tags) for point in found] == [
        {"group": "g", "topic": "t", "partition": str(number)} for number in range(3)
    ]
    assert [dict(one.fields) for one in points([GroupLag("g", group.partitions[1:2], 3)], 77)] == [
        {"start": 1, "end": 10, "members": 3}
    ]
    assert [dict(point.fields) for point in found] == [
        {"start": 1, "end": 10, "committed": 4, "lag": 6},
        {"start": 1, "end": 10},
        {"start": 1, "end": 10, "committed": 11},
    ]
