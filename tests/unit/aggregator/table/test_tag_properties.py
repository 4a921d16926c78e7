"""Sums that lack tags are those of verify's replay on random schedules: rule 12, in every way in which the table runs.

Metrics differ only in a tag `pod`, so a table can have one sum for several of them. One life may have several metrics
of a sum: in one snapshot, in two parts, and in the short form.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.replayed import TopicRecord, replay
from support.runs import UNLIMITED, check, move, new_tables, require_equal, sum_tags, take
from support.schedules import Life, Play, Steady, forget_value, keys_of_shards, schedules, short_schedules, step_sizes
from support.tables import divide

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
        return [_of_pod(metric, chance.choice("123")) for metric in metrics]

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
        return [_of_pod(metric, pod) | {"name": "s0"} for pod, metrics in pods for metric in metrics]


def _of_pod(metric: dict[str, Any], pod: str) -> dict[str, Any]:
    return metric | {"tags": metric["tags"] | {"pod": pod}}


def play_tagged(schedule: list[int], shards: int = 1) -> list[TopicRecord]:
    """Return the records of a schedule, in which lives publish steadily if its first seed is odd."""
    playing: Play = SteadyTagged(shards) if schedule and schedule[0] % 2 else Tagged(shards)
    for seed in schedule:
        playing.step(seed)
    return playing.records


tags = st.sampled_from(TAGS)


@examples(60)
@given(few_or_many, step_sizes | st.just([1_000]), tags)
def test_sums_without_tags_equal_the_replay_in_any_steps(
    schedule: list[int], sizes: list[int], without: dict[str, tuple[str, ...]]
) -> None:
    """An instance counts once in a sum, however many metrics it has there. Dead letters and events are the same."""
    records = play_tagged(schedule)
    check(records, divide(records, sizes), RULES, without)


@examples(20)
@given(few_or_many, step_sizes, tags, chances)
def test_sums_without_tags_equal_the_replay_while_instances_move(
    schedule: list[int], sizes: list[int], without: dict[str, tuple[str, ...]], chance: random.Random
) -> None:
    """Each instance is in several partitions, whose records are read in any order."""
    records = move(play_tagged(schedule), chance)
    check(records, divide(records, sizes, chance), RULES, without)


@examples(40)
@given(few_or_many, step_sizes, st.integers(1, 4), tags, chances)
def test_a_table_without_tags_that_begins_again_equals_the_replay(
    schedule: list[int], sizes: list[int], shards: int, without: dict[str, tuple[str, ...]], chance: random.Random
) -> None:
    """From its state or its rows, in several shards, whose sums are combined."""
    records = play_tagged(schedule, shards)
    tables = new_tables(records, UNLIMITED, shards, chance, sum_tags=sum_tags(without))
    take(divide(records, sizes), tables, chance, broken=0.3)
    require_equal(tables, replay(records, shards=shards, **UNLIMITED, **without))  # type: ignore[arg-type]
