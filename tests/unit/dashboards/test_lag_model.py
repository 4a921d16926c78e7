"""What lag is: arithmetic that never invents a number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystream_dashboards.lag import Behind, BeyondEnd, GroupLag, NothingCommitted, Total, partition_lag

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
