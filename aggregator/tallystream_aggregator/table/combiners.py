"""The sums of a table of several shards: a shard's partial sums replace its earlier ones, and are added over shards.

This is a changelog table, too, with one row for each metric and shard. Every value is absolute, so a batch that runs
again changes nothing. It is stored as a log, whose entries have the combiners that changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum
from tallystream_aggregator.table.outputs import Total
from tallystream_aggregator.table.shards import ShardSum, group_of
from tallystream_aggregator.table.state import STATE_VERSION, MetricId, damaged
from tallystream_aggregator.table.storage import Log, Store, items_per_entry, read_log
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tallystream_aggregator.table.outputs import Offsets
    from tallystream_aggregator.table.state import State


class Combiner(msgspec.Struct, array_like=True):
    """The partial sums of the shards for one metric."""

    shard_sums: dict[int, ShardSum]


class CombinerGroup:
    """The combiners of one group of metrics. `dirty` are those that have changed since they were last stored.

    `published` is False until a rebuilt group has published its sums. The next batch publishes all of them.
    """

    def __init__(self, metrics: dict[MetricId, Combiner] | None = None, *, published: bool = True) -> None:
        self.metrics = metrics if metrics is not None else {}
        self.published = published
        self.dirty: set[MetricId] = set()
        self._changed: set[MetricId] = set()

    def update(self, shard_sums: Iterable[ShardSum], *, is_new: bool = True) -> None:
        """Replace the partial sums of shards by newer ones. Those that are not new are published already."""
        for one in shard_sums:
            self.metrics.setdefault(one.metric, Combiner({})).shard_sums[one.shard] = one
            if is_new:
                self._changed.add(one.metric)

    def remove(self, metric: MetricId, shard: int) -> None:
        """Remove the partial sums of a shard for a metric."""
        combiner = self.metrics[metric]
        del combiner.shard_sums[shard]
        if combiner.shard_sums:
            self._changed.add(metric)
        else:
            del self.metrics[metric]
            self._changed.discard(metric)

    def changes(self) -> list[Total]:
        """Return the sums that changed since the last call, by metric, and clear the list."""
        changed = self._changed if self.published else set(self.metrics)
        totals = [self._combine(metric) for metric in sorted(changed)]
        self.dirty |= changed
        self._changed, self.published = set(), True
        return totals

    def _combine(self, metric: MetricId) -> Total:
        combiner = self.metrics[metric]
        partial, offsets, out_ms = PartialSum(metric[2]), dict[str, dict[str, int]](), 0
        for one in combiner.shard_sums.values():
            partial.merge(one.partial())
            out_ms = max(out_ms, one.out_ms)
            _merge_offsets(offsets, one.offsets)
        return Total.of(metric, partial, out_ms, offsets)


def _merge_offsets(offsets: Offsets, more: Offsets) -> None:
    # All shards process the same batches: an offset that one of them has reached, all of them have reached.
    for topic, partitions in more.items():
        merged = offsets.setdefault(topic, {})
        for partition, offset in partitions.items():
            merged[partition] = max(offset, merged.get(partition, -1))


def combine_shards(states: Sequence[State]) -> list[CombinerGroup]:
    """Return the groups of combiners for shards with these states. Nothing is published yet."""
    groups = [CombinerGroup(published=False) for _ in states]
    for state in states:
        table = Table(state)
        table.notice_silence()  # a row has what was living when it was written
        for shard_sums in table.shard_sums(range(len(state.metrics))):
            groups[group_of(shard_sums.metric, len(states))].update([shard_sums])
    return groups


class Entry(msgspec.Struct, array_like=True):
    """An entry of the log: the combiners that changed. `published` is the group's."""

    version: int
    published: bool
    combiners: list[tuple[MetricId, Combiner]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(Entry)


class StoredGroup:
    """A group of combiners together with its log."""

    def __init__(self, group: CombinerGroup, log: Log | None = None) -> None:
        self.group = group
        self.log = log or Log()

    def save(self, store: Store) -> None:
        """Store the changes since the last call."""
        dirty, self.group.dirty = self.group.dirty, set()
        changed = [(metric, self.group.metrics[metric]) for metric in dirty]
        self.log.append(store, list(_entries(self.group, changed)), lambda: pack(self.group))


def pack(group: CombinerGroup) -> Iterator[bytes]:
    """Yield all combiners as entries, each of a limited size."""
    return _entries(group, list(group.metrics.items()))


def unpack(entries: list[bytes]) -> CombinerGroup:
    """Return the group that the entries make.

    Raises:
        StateVersionError: an entry is damaged.
    """
    group = CombinerGroup()
    for data in entries:
        try:
            entry = _decode(data)
        except msgspec.DecodeError as error:
            raise damaged(error) from error
        group.published = entry.published
        group.metrics.update(entry.combiners)
    return group


def load(store: Store, begin: Callable[[], CombinerGroup] = CombinerGroup) -> StoredGroup:
    """Return the stored group, or the one that `begin` returns if none is stored.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    head = store.head()
    if head is None:
        return StoredGroup(begin())
    log, entries = read_log(store, head)
    return StoredGroup(unpack(entries), log)


def _entries(group: CombinerGroup, combiners: list[tuple[MetricId, Combiner]]) -> Iterator[bytes]:
    size = items_per_entry(combiners)
    for first in range(0, max(1, len(combiners)), size):
        yield _encode(Entry(STATE_VERSION, group.published, combiners[first : first + size]))
