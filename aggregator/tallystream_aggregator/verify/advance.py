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
    """From `ends` on, the table has so many shards, forgets lives after this time, in ms, and has so much memory.

    These are the positions of each shard, or the same of all. It reads the topics `otlp` as OTLP metrics.
    """

    ends: tuple[Ends, ...]
    shards: int
    forget_after_ms: int
    max_table_bytes: int
    otlp: tuple[str, ...] = ()


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
        self._at = [begin]  # of each shard
        self._waiting: dict[PartitionName, list[RawRecord]] = {}  # read, and beyond the positions of a shard
        self.records = 0
        self.letters: Counter[Place] = Counter()
        self.reasons: dict[Place, str] = {}
        self.events: Counter[Event] = Counter()

    def change(self, change: Change) -> None:
        """Read up to where the settings of the table change, and change them."""
        if len(change.ends) > 1:  # another number only if the ledger was deleted: then it begins there
            self._split(len(change.ends))
        self._read(change.ends if len(change.ends) > 1 else change.ends * self.replay.shards)
        self._split(change.shards)
        self.replay.change(change.forget_after_ms, change.max_table_bytes, change.otlp)

    def finish(self, shards: Sequence[Ends]) -> None:
        """Read up to the positions of each shard."""
        self._split(len(shards))
        self._read(shards)

    def _split(self, shards: int) -> None:
        """Divide the table among so many shards. If it had another number, all were at the same positions."""
        if shards != self.replay.shards:
            self.replay.split(shards)
            self._at = [self._at[0]] * shards

    def _read(self, shards: Sequence[Ends]) -> None:
        """Apply the records up to the ends of each shard. The partitions are read side by side, by append time."""
        names = dict.fromkeys(name for ends in shards for name in ends)
        spans: dict[PartitionName, list[tuple[int, int]]] = {}
        for name in names:
            firsts = [at.get(name, 0) for at in self._at]
            spans[name] = [(at, max(at, one.get(name, 0))) for at, one in zip(firsts, shards, strict=True)]
        lowest = {name: min(end for _, end in of_shards) for name, of_shards in spans.items()}
        streams = [self._below(name, max(end for _, end in spans[name]), lowest[name]) for name in names]
        for name, record in merge(*streams, key=lambda one: one[1][1]):
            for shard, (at, end) in enumerate(spans[name]):
                if at <= record[0] < end:
                    self._apply(name, record, shard)
            if record[0] < lowest[name]:
                self.records += 1
                if self.records % PROGRESS_EVERY == 0:
                    self._on_progress(self.records)
        self._at = [at | {name: spans[name][shard][1] for name in names} for shard, at in enumerate(self._at)]

    def _below(self, name: PartitionName, end: int, lowest: int) -> Iterator[tuple[PartitionName, RawRecord]]:
        """Yield the records of a partition below an offset. Those from `lowest` on, and the next one, wait."""
        read = chain(self._waiting.get(name, ()), self._records.get(name, ()))
        self._waiting[name] = waiting = []
        for record in read:
            if record[0] >= lowest:
                waiting.append(record)
            if record[0] >= end:
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
