"""The layout of a table, its number of shards and the tags of its sums, and the transactional IDs of its writers.

A table that exists keeps its layout, which each positions row has. Only `stream.reshard` changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.positions import visible_row
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Broker


class Layout(NamedTuple):
    """The number of shards of a table, and the tags of its sums."""

    shards: int = 1
    sum_tags: SumTags = SumTags()

    def __str__(self) -> str:
        return f"{self.shards} shard{'s' if self.shards > 1 else ''}, sums with {self.sum_tags}"


def loop_id(topics: Topics, number: int) -> str:
    """Return the transactional ID of a loop: that of a shard, or of the combiner after the last shard."""
    return f"{topics.prefix}tallystream-aggregator-{number}"


def change_id(topics: Topics) -> str:
    """Return the transactional ID of a change of the layout."""
    return f"{topics.prefix}tallystream-aggregator-rebuild"


def end_change(broker: Broker, topics: Topics) -> None:
    """End a change of the layout that is under way.

    Call it after a generation was taken: a change that begins later finds that generation, and ends.

    Raises:
        FencedError: a change has begun at the same time.
        BrokerError: the broker did not answer in time.
    """
    broker.writer(change_id(topics)).close()


def visible_layout(broker: Broker, topics: Topics) -> Layout | None:
    """Return the layout of the table as it is visible now, or None if there is no table.

    Raises:
        BrokerError: the broker did not answer in time.
    """
    row = visible_row(broker, Place(topics.table, 0), 0)
    return None if row is None else Layout(row.of, row.sum_tags)
