"""The sums of several shards."""

from __future__ import annotations

from tallystream_aggregator.table.arithmetic.partial_sums import Contribution, PartialSum
from tallystream_aggregator.table.combiners import CombinerGroup, ShardSum

METRIC = ("shop", "n", "counter", ())


def of_shard(shard: int, count: int | None, out_ms: int = 0) -> ShardSum:
    """Return the partial sums of a shard with one life, or without any."""
    partial = PartialSum("counter")
    if count is not None:
        partial.replace(None, Contribution((count,), current=True))
    return ShardSum(shard, METRIC, partial, out_ms)


def counts(group: CombinerGroup) -> list[tuple[int | None, int, int]]:
    """Return the count, the living lives and the time of each sum that has changed."""
    return [(total.count, total.lives, total.ts) for total in group.changes()]


def test_a_shard_replaces_its_earlier_sums_and_those_of_all_are_added() -> None:
    """The time is that of the newest one. What is known already is not published again."""
    group = CombinerGroup()
    group.update([of_shard(0, 5, 7)], is_new=False)
    assert counts(group) == []
    group.update([of_shard(1, 2, 3)])
    assert counts(group) == [(7, 2, 7)]
    group.update([of_shard(0, 6, 8)])
    assert counts(group) == [(8, 2, 8)]
    assert counts(group) == []


def test_a_metric_that_no_shard_has_any_more_is_published_once_and_dropped() -> None:
    """One that a shard still has is kept."""
    group = CombinerGroup()
    group.update([of_shard(0, 5), of_shard(1, 2)])
    group.update([of_shard(0, None)])
    assert counts(group) == [(2, 1, 0)]
    group.update([of_shard(1, None)])
    assert counts(group) == [(0, 0, 0)]
    assert not group._shard_sums


def test_sums_of_removed_shards_are_added_no_more() -> None:
    """After the last one nothing is published. A shard that has none can be removed, too."""
    group = CombinerGroup()
    group.update([of_shard(0, 5), of_shard(1, 2)])
    group.remove(METRIC, 2)
    group.remove(METRIC, 0)
    assert counts(group) == [(2, 1, 0)]
    group.update([of_shard(1, 3)])
    group.remove(METRIC, 1)
    group.remove(METRIC, 1)
    assert counts(group) == []
    assert not group._shard_sums
