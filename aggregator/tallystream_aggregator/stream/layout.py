"""The layout of a table, its number of shards and the tags of its sums, and who its loops are.

A table that exists keeps its layout, which each positions row has. Only `stream.reshard` changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topics import Topics


class Layout(NamedTuple):
    """The number of shards of a table, and the tags of its sums."""

    shards: int = 1
    sum_tags: SumTags = SumTags()

    def __str__(self) -> str:
        return f"{self.shards} shard{'s' if self.shards > 1 else ''}, sums with {self.sum_tags}"


class LoopId(NamedTuple):
    """Who a loop is: its number among the shards of a table. The combiner of several shards comes after the last."""

    topics: Topics
    number: int = 0
    shards: int = 1

    @property
    def transactional_id(self) -> str:
        """The transactional ID of its writers."""
        return f"{self.topics.prefix}tallystream-aggregator-{self.number}"

    @property
    def rows(self) -> Place:
        """The partition of its positions row, and of a shard's rows. Nobody else writes it."""
        return Place(self.topics.table if self.number < self.shards else self.topics.shards, self.number)

    @property
    def sums(self) -> Place:
        """The partition with its sums, or with the partial sums of one of several shards. Nobody else writes it."""
        partial = self.number < self.shards > 1
        return Place(self.topics.shards, self.number) if partial else Place(self.topics.agg, 0)


def loops_of(topics: Topics, shards: int) -> list[LoopId]:
    """Return the loops of a table with so many shards, that of the combiner last if there are several."""
    return [LoopId(topics, number, shards) for number in range(shards + (shards > 1))]
