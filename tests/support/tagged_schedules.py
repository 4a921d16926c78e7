"""Random schedules in which metrics differ only in a tag `pod`, so a table can have one sum for several of them.

One life may have several metrics of a sum: in one snapshot, in two parts, and in the short form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.schedules import Life, Play, Steady, TopicRecord, forget_value, keys_of_shards

if TYPE_CHECKING:
    import random

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
