"""Lag on the page: worst first, unknown never as zero, nothing that has gone away."""

from __future__ import annotations

from tallystream.aggregator.sinks.base import Series
from tallystream.dashboards.page.lags import by_group, group_line, group_rows, partition_rows, role


def partition(group: str, number: int, times: list[int], lags: list[int] | None, topic: str = "t") -> list[Series]:
    tags = {"group": group, "topic": topic, "partition": str(number)}
    found = [Series("tallystream.lag", tags, "end", times, [100] * len(times))]
    if lags is not None:
        found.append(Series("tallystream.lag", tags, "lag", times[: len(lags)], list(lags)))
        found.append(Series("tallystream.lag", tags, "committed", times[: len(lags)], [100 - value for value in lags]))
    return found


def test_groups_come_worst_first_with_sums_over_partitions() -> None:
    """The group with the most lag leads; its lag is the sum and its worst partition the maximum."""
    found = group_rows(
        by_group(
            [
                *partition("a", 0, [1, 2], [5, 3]),
                *partition("b", 0, [1, 2], [0, 10]),
                *partition("b", 1, [1, 2], [9, 4]),
            ]
        )
    )
    assert [(row.group, row.lag, row.worst, row.partitions) for row in found] == [("b", 14, 10, 2), ("a", 3, 3, 1)]


def test_unknown_lag_is_counted_not_added() -> None:
    """A partition without a commit makes no number: it is counted as unknown, and stands before the worst one."""
    groups = by_group([*partition("a", 0, [1], [5]), *partition("a", 1, [1], None)])
    (row,) = group_rows(groups)
    assert (row.lag, row.partitions, row.unknown) == (5, 2, 1)
    assert [(one.partition, one.lag) for one in partition_rows(groups["a"])] == [(1, None), (0, 5)]


def test_a_group_without_any_commit_has_no_lag() -> None:
    """Nothing committed anywhere is None, never 0."""
    (row,) = group_rows(by_group(partition("a", 0, [1], None)))
    assert (row.lag, row.worst) == (None, None)


def test_lag_that_became_unknown_is_not_carried_on() -> None:
    """When the newest point has no lag (the commit is past the end), the lag of before is not shown as today's."""
    (row,) = partition_rows(by_group(partition("a", 0, [1, 2], [5]))["a"])
    assert (row.lag, row.committed, row.end) == (None, None, 100)


def test_a_group_that_vanished_is_marked_gone() -> None:
    """A group that rounds later than 90 s no longer mention stays in the table, marked as gone."""
    found = group_rows(by_group([*partition("old", 0, [0], [5]), *partition("new", 0, [0, 90_001], [1, 1])]))
    assert {row.group: row.gone for row in found} == {"old": True, "new": False}


def test_a_deleted_topic_leaves_the_lag() -> None:
    """Partitions that the group's newer rounds do not mention are no part of its lag of now."""
    (row,) = group_rows(by_group([*partition("g", 0, [0], [50], topic="old"), *partition("g", 0, [95_000], [2])]))
    assert (row.lag, row.partitions) == (2, 1)


def test_the_group_line_adds_partitions_up() -> None:
    """A group's lag over time is, at each round, the sum over its partitions."""
    groups = by_group([*partition("g", 0, [1, 2], [5, 3]), *partition("g", 1, [1, 2], [1, 0])])
    line = group_line("g", groups["g"])
    assert (line.times_ms, line.values) == ([1, 2], [6, 3])


def test_our_own_groups_have_a_role() -> None:
    """The aggregator and the shipper are told from consumers, with a topic prefix too."""
    assert [role(g) for g in ("tallystream-aggregator", "x-tallystream-shipper", "billing")] == [
        "aggregator",
        "shipper",
        "consumer",
    ]
