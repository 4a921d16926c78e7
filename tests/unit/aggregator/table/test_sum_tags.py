"""Rule 12: sums without some tags, from rows that have all tags. On random schedules they are those of verify's replay.

In the schedules, metrics differ only in a tag `pod`, so a table can have one sum for several of them. One life may have
several metrics of a sum: in one snapshot, in two parts, and in the short form.
"""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.replayed import TopicRecord, replay
from support.runs import UNLIMITED, check, move, new_tables, require_equal, sum_tags, take
from support.schedules import (
    LONG,
    Life,
    Play,
    Steady,
    forget_value,
    keys_of_shards,
    schedules,
    short_schedules,
    step_sizes,
)
from support.steps import Topic, counter, publish, run
from support.tables import divide
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
    return metric | {"tags": metric.get("tags", {}) | {"pod": pod}}


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


RULES = {"short_form_every_ms": 5_000, "max_metrics": 25}
chances = st.randoms(use_true_random=False)
few_or_many = st.one_of(short_schedules, short_schedules, schedules)

TAGS: list[dict[str, tuple[str, ...]]] = [
    {"drop_tags": ("pod",)},
    {"drop_tags": ("a", "k", "pod")},
    {"keep_tags": ("a", "k")},
    {"keep_tags": ()},
]
"""Tags that the sums lack, or the only ones that they have."""


class Tagged(Play):
    """Plays steps in which a life publishes some metrics for several pods, and forgets those of one pod."""

    def _metrics(self, chance: random.Random, life: Life, part: int) -> list[dict[str, Any]]:
        metrics = [*super()._metrics(chance, life, part), *super()._metrics(chance, life, part)]
        return [of_pod(metric, chance.choice("123")) for metric in metrics]

    def _remove_lives(self, chance: random.Random, instance: str) -> None:
        if not self.shards or chance.random() < 0.7:
            super()._remove_lives(chance, instance)
            return
        named = {"metric": chance.choice(["m0", "m0", "m1"]), "tags": {"pod": chance.choice("123")}}
        for partition in (0, 1):
            for key in keys_of_shards(self.shards):
                self._append(key, forget_value(named | {"shards": self.shards}), partition)


class SteadyTagged(Steady):
    """Plays steps in which a life publishes the same metrics of two pods again and again, in both of its parts."""

    def _metrics(self, chance: random.Random, life: Life, part: int) -> list[dict[str, Any]]:
        one, other = super()._metrics(chance, life, part), super()._metrics(chance, life, part)
        pods = [(f"{part}-a", one), (f"{part}-b", other)]
        return [of_pod(metric, pod) | {"name": "s0"} for pod, metrics in pods for metric in metrics]


def play_tagged(schedule: list[int], shards: int = 1) -> list[TopicRecord]:
    """Return the records of a schedule, in which lives publish steadily if its first seed is odd."""
    playing: Play = SteadyTagged(shards) if schedule and schedule[0] % 2 else Tagged(shards)
    for seed in schedule:
        playing.step(seed)
    return playing.records


tags = st.sampled_from(TAGS)


@examples(60)
@example(LONG, [7], TAGS[0])
@given(few_or_many, step_sizes | st.just([1_000]), tags)
def test_sums_without_tags_equal_the_replay_in_any_steps(
    schedule: list[int], sizes: list[int], without: dict[str, tuple[str, ...]]
) -> None:
    """An instance counts once in a sum, however many metrics it has there. Dead letters and events are the same."""
    records = play_tagged(schedule)
    check(records, divide(records, sizes), RULES, without)


@examples(20)
@example([1, *LONG], [7], TAGS[0], random.Random(0))
@given(few_or_many, step_sizes, tags, chances)
def test_sums_without_tags_equal_the_replay_while_instances_move(
    schedule: list[int], sizes: list[int], without: dict[str, tuple[str, ...]], chance: random.Random
) -> None:
    """Each instance is in several partitions, whose records are read in any order."""
    records = move(play_tagged(schedule), chance)
    check(records, divide(records, sizes, chance), RULES, without)


@examples(40)
@example(LONG, [7], 2, TAGS[1], random.Random(0))
@given(few_or_many, step_sizes, st.integers(1, 4), tags, chances)
def test_a_table_without_tags_that_begins_again_equals_the_replay(
    schedule: list[int], sizes: list[int], shards: int, without: dict[str, tuple[str, ...]], chance: random.Random
) -> None:
    """From its state or its rows, in several shards, whose sums are combined."""
    records = play_tagged(schedule, shards)
    tables = new_tables(records, UNLIMITED, shards, chance, sum_tags=sum_tags(without))
    read = take(divide(records, sizes), tables, chance, broken=0.3)
    require_equal(tables, replay(read, shards=shards, **UNLIMITED, **without))  # type: ignore[arg-type]
