"""Rule 12: sums without some tags, from rows that have all tags."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from support.steps import Topic, counter, publish, run
from tallystream.errors import ConfigError
from tallystream_aggregator.sums import MetricId
from tallystream_aggregator.table import Table
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.rows import LifeRow, ShardRow
from tallystream_aggregator.table.sum_tags import SumTags, parse_sum_tags

NO_POD = SumTags(drop=("pod",))
N: MetricId = ("shop", "n", "counter", ())


def of_pod(metric: dict[str, Any], pod: str) -> dict[str, Any]:
    """Return a metric with the tag of a pod."""
    return metric | {"tags": {"pod": pod}}


def gauge(value: float, pod: str) -> dict[str, Any]:
    """Return a gauge of a pod."""
    return of_pod({"type": "gauge", "name": "g", "value": value}, pod)


def test_rule_12_metrics_that_differ_only_in_a_dropped_tag_have_one_sum() -> None:
    """The row of the life has both of them, with their tag."""
    topic = Topic(sum_tags=NO_POD).snapshot(of_pod(counter(3), "a"), of_pod(counter(4), "b"), counter(5))
    assert [(total.metric, total.count) for total in topic.changes.totals] == [(N, 12)]
    (row,) = (one.value() or b"" for one in topic.changes.rows if isinstance(one.row, LifeRow))
    assert b'"count":3,"name":"n","tags":{"pod":"a"}' in row
    assert b'"count":4,"name":"n","tags":{"pod":"b"}' in row


def test_rule_12_an_instance_counts_once_and_a_life_once_for_each_of_its_metrics() -> None:
    """The mean of a gauge is that of its values: `number` counts them."""
    topic = Topic(sum_tags=NO_POD).snapshot(gauge(1, "a"), gauge(2, "b")).snapshot(gauge(6, "a"), key=b"app-2")
    found = topic.sum("g")
    assert (found.sum, found.min, found.max, found.number, found.mean) == (9, 1, 6, 3, 3)
    assert (found.lives, found.instances) == (3, 2)


@pytest.mark.parametrize(
    ("tags", "left"),
    [
        (SumTags(), "abcd"),
        (SumTags(drop=("a", "c")), "bd"),
        (SumTags(keep=("a", "x")), "a"),
        (SumTags(keep=()), ""),
    ],
)
def test_tags_are_dropped_or_kept(tags: SumTags, left: str) -> None:
    """The others keep their order."""
    assert tags.of("counter", tuple((tag, "1") for tag in "abcd")) == tuple((tag, "1") for tag in left)


@pytest.mark.parametrize("tags", [SumTags(keep=()), SumTags(drop=("bounds", "partition", "topic", "x"))])
def test_tags_without_which_a_sum_means_nothing_are_kept(tags: SumTags) -> None:
    """A position is one of a partition of a topic, buckets have bounds. Other metrics lose tags with these names."""
    position, buckets = (("partition", "0"), ("topic", "t"), ("x", "1")), (("bounds", "1-0a"), ("topic", "t"))
    assert tags.of("position", position) == position[:2]
    assert tags.of("buckets", buckets) == buckets[:1]
    assert tags.of("counter", position) == tags.of("counter", buckets) == ()


def test_the_options_exclude_each_other_and_name_tags() -> None:
    """Without options nothing is said about tags."""
    assert parse_sum_tags(None, None) is None
    assert parse_sum_tags(["pod", "host", "pod"], None) == SumTags(drop=("host", "pod"))
    assert parse_sum_tags([], "topic,region") == SumTags(keep=("region", "topic"))
    assert parse_sum_tags(None, "") == SumTags(keep=())
    for drop, keep, error in (
        (["pod"], "a", "--keep-tags: 'a' can't be used; give it without --drop-tag"),
        (["pod", ""], None, "--drop-tag: 'pod,' can't be used; name tags that are not empty"),
        (None, "a,,b", "--keep-tags: 'a,,b' can't be used; name tags that are not empty"),
    ):
        with pytest.raises(ConfigError, match=error):
            parse_sum_tags(drop, keep)


def test_a_rebuild_has_the_tags_of_the_rows_or_other_ones() -> None:
    """They are in the row of the shard. All sums are published."""
    topic, latest = Topic(sum_tags=NO_POD).snapshot(of_pod(counter(3), "a"), of_pod(counter(4), "b")), LatestRows()
    for row in topic.changes.rows:
        latest.add(row.key, row.value())
    for tags, wanted in ((None, [((), 7)]), (SumTags(), [((("pod", "a"),), 3), ((("pod", "b"),), 4)])):
        table = Table(restore(deepcopy(latest), sum_tags=tags).states[0])
        table.publish_all()
        found = publish(table)
        assert [(one.metric[3], one.count) for one in found.totals] == wanted
        assert [one.row.sum_tags for one in found.rows if isinstance(one.row, ShardRow)] == [tags or NO_POD]
        assert run(table, []).totals == []
