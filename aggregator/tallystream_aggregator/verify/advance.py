"""Replays the records of a topic up to given positions, each shard up to its own."""

from __future__ import annotations

from collections import Counter
from heapq import merge
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tallystream_aggregator.verify.published import Ends, Event, PartitionName, Place
    from tallystream_aggregator.verify.replay import Replay


PROGRESS_EVERY = 1_000

RawRecord = tuple[int, int, bytes | None, bytes | None]
"""(offset, append time in epoch ms, key, value) of a record."""


class Change(NamedTuple):
    """From `ends` on, the table has so many shards, forgets lives after this time, in ms, and has so much memory."""

    ends: Ends
    shards: int
    forget_after_ms: int
    max_table_bytes: int


class Advance:
    """Advances a replay.

    `records` is the number of records that all shards have read, `letters` how many dead letters each record makes, and
    `events` how many events of each kind. `reasons` has one for each record with dead letters.

    Args:
        replay: at the offsets `begin`, at which the table began.
        begin: these offsets.
        records: the records of each partition, from these offsets on.
        on_progress: called after every `PROGRESS_EVERY` records with the number replayed so far.
    """

    def __init__(
        self,
        replay: Replay,
        begin: Ends,
        records: Mapping[PartitionName, Iterator[RawRecord]],
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.replay, self.begin = replay, begin
        self._records, self._on_progress = records, on_progress
        self._at = dict(begin)
        self._next: dict[PartitionName, RawRecord] = {}  # read, and beyond the positions
        self.records = 0
        self.letters: Counter[Place] = Counter()
        self.reasons: dict[Place, str] = {}
        self.events: Counter[Event] = Counter()

    def change(self, change: Change) -> None:
        """Read up to where the settings of the table change, and change them. All shards have the same positions."""
        self._read([change.ends] * self.replay.shards)
        self.replay.split(change.shards)
        self.replay.limit(forget_after_ms=change.forget_after_ms, max_table_bytes=change.max_table_bytes)

    def finish(self, shards: Sequence[Ends]) -> None:
        """Read up to the positions of each shard. Nothing can be read after that."""
        self.replay.split(len(shards))
        self._read(shards)

    def _read(self, shards: Sequence[Ends]) -> None:
        """Apply the records up to the ends of each shard. The partitions are read side by side, by append time."""
        names = dict.fromkeys(name for ends in shards for name in ends)
        ends = {name: [max(self._at.get(name, 0), one.get(name, 0)) for one in shards] for name in names}
        streams = [self._below(name, max(ends[name])) for name in names]
        for name, record in merge(*streams, key=lambda one: one[1][1]):
            for shard, end in enumerate(ends[name]):
                if record[0] < end:
                    self._apply(name, record, shard)
            if record[0] < min(ends[name]):
                self.records += 1
                if self.records % PROGRESS_EVERY == 0:
                    self._on_progress(self.records)
        self._at |= {name: min(of_shards) for name, of_shards in ends.items()}

    def _below(self, name: PartitionName, end: int) -> Iterator[tuple[PartitionName, RawRecord]]:
        """Yield the records of a partition below an offset. The next one waits."""
        waiting = [self._next.pop(name)] if name in self._next else []
        for record in chain(waiting, self._records.get(name, ())):
            if record[0] >= end:
                self._next[name] = record
                return
            yield name, record

    def _apply(self, partition: PartitionName, record: RawRecord, shard: int) -> None:
        offset, timestamp_ms, key, value = record
        refused = self.replay.read(shard, partition, timestamp_ms, key, value)
        if refused:
            self.letters[partition, offset] += len(refused)
            self.reasons[partition, offset] = refused[0]
        if events := self.replay.noted.events:
            self.events.update((partition, offset, *event) for event in events)
            events.clear()
