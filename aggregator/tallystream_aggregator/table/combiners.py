"""The sums of a table of several shards: a shard's partial sums replace its earlier ones, and are added over shards.

This is a changelog table too, with one row for each metric and shard. Every value is absolute, so a batch that runs
again changes nothing. It is stored as a log, whose entries have the combiners that changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.table.arithmetic.metric_types import saturated
from tallystream_aggregator.table.arithmetic.partial_sums import Partial
from tallystream_aggregator.table.outputs import Event, Offsets, Total
from tallystream_aggregator.table.shards import ShardSum, group_of
from tallystream_aggregator.table.state import STATE_VERSION, MetricId, damaged
from tallystream_aggregator.table.storage import Log, Store, items_of_an_entry, read
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tallystream_aggregator.table.state import State


class Combiner(msgspec.Struct, array_like=True):
    """The partial sums of the shards for one metric. `overflowed` tells whether the sum exceeds its range."""

    shard_sums: dict[int, ShardSum]
    overflowed: bool = False


class Combined:
    """The metrics of one group of combiners. `dirty` are those that have changed since they were last stored.

    `published` is False until a rebuilt group has published its sums: the next batch publishes all of them.
    """

    def __init__(self, metrics: dict[MetricId, Combiner] | None = None, *, published: bool = True) -> None:
        self.metrics = metrics if metrics is not None else {}
        self.published = published
        self.dirty: set[MetricId] = set()
        self._touched: set[MetricId] = set()

    def take(self, shard_sums: Iterable[ShardSum]) -> None:
        """Replace the partial sums of shards by newer ones."""
        for one in shard_sums:
            self.metrics.setdefault(one.metric, Combiner({})).shard_sums[one.shard] = one
            self._touched.add(one.metric)

    def changes(self) -> tuple[list[Total], list[Event]]:
        """Return the sums that changed since the last call, by metric, and the events, and clear both."""
        touched = self._touched if self.published else set(self.metrics)
        totals, events = [], []
        for metric in sorted(touched):
            total = self._combine(metric)
            totals.append(total)
            combiner = self.metrics[metric]
            if total.overflow and not combiner.overflowed:
                events.append(Event("overflow", metric[0], "", "", total.ts_ms, detail=metric[1]))
            combiner.overflowed = total.overflow
        self.dirty |= touched
        self._touched, self.published = set(), True
        return totals, events

    def _combine(self, metric: MetricId) -> Total:
        combiner = self.metrics[metric]
        partial, offsets, out_ms = Partial(metric[2]), dict[str, dict[str, int]](), 0
        for one in combiner.shard_sums.values():
            partial.merge(one.partial())
            out_ms = max(out_ms, one.out_ms)
            _raise(offsets, one.offsets)
        summed, overflow = saturated(partial.totals())
        summed |= partial.quantiles()
        counts = (partial.lives, partial.instances, out_ms, offsets, partial.forgotten)
        return Total(metric, summed, *counts, overflow)


def _raise(offsets: Offsets, more: Offsets) -> None:
    # All shards process the same batches: an offset that one of them has reached, all of them have reached.
    for topic, partitions in more.items():
        known = offsets.setdefault(topic, {})
        for partition, offset in partitions.items():
            known[partition] = max(offset, known.get(partition, -1))


def combine(states: Sequence[State]) -> list[Combined]:
    """Return the groups of combiners for shards with these states. Nothing is published yet."""
    groups = [Combined(published=False) for _ in states]
    for state in states:
        for shard_sums in Table(state).shard_sums(range(len(state.metrics))):
            groups[group_of(shard_sums.metric, len(states))].take([shard_sums])
    return groups


class Entry(msgspec.Struct, array_like=True):
    """An entry of the log: the combiners that changed. `published` is the group's."""

    version: int
    published: bool
    combiners: list[tuple[MetricId, Combiner]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(Entry)


class StoredCombined:
    """A group of combiners together with its log."""

    def __init__(self, combined: Combined, log: Log | None = None) -> None:
        self.combined = combined
        self.log = log or Log()

    def save(self, store: Store) -> None:
        """Store the changes since the last call."""
        dirty, self.combined.dirty = self.combined.dirty, set()
        changed = [(metric, self.combined.metrics[metric]) for metric in dirty]
        self.log.append(store, list(_entries(self.combined, changed)), lambda: pack(self.combined))


def pack(combined: Combined) -> Iterator[bytes]:
    """Yield all combiners as entries, each of a limited size."""
    return _entries(combined, list(combined.metrics.items()))


def unpack(entries: list[bytes]) -> Combined:
    """Return the group that the entries make.

    Raises:
        StateVersionError: an entry is damaged.
    """
    combined = Combined()
    for data in entries:
        try:
            entry = _decode(data)
        except msgspec.DecodeError as error:
            raise damaged(error) from error
        combined.published = entry.published
        combined.metrics.update(entry.combiners)
    return combined


def load(store: Store, begin: Callable[[], Combined] = Combined) -> StoredCombined:
    """Return the stored group, or the one that `begin` returns if none is stored.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    head = store.head()
    if head is None:
        return StoredCombined(begin())
    log, entries = read(store, head)
    return StoredCombined(unpack(entries), log)


def _entries(combined: Combined, combiners: list[tuple[MetricId, Combiner]]) -> Iterator[bytes]:
    size = items_of_an_entry(combiners)
    for first in range(0, max(1, len(combiners)), size):
        yield _encode(Entry(STATE_VERSION, combined.published, combiners[first : first + size]))
