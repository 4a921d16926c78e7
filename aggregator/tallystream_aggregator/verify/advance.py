"""Replays the records of a topic up to given moments, each shard up to its own positions."""

from __future__ import annotations

from collections import Counter
from heapq import merge
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.verify.published import Ends, is_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tallystream_aggregator.verify.decode import RawRecord
    from tallystream_aggregator.verify.published import Event, Moment, PartitionName, Place
    from tallystream_aggregator.verify.replay import Replay


PROGRESS_EVERY = 1_000


class Change(NamedTuple):
    """From `ends` on, the table has so many shards, and forgets lives after this time, in ms; 0 if it is unknown."""

    ends: Ends
    shards: int
    forget_after_ms: int


class Advance:
    """Advances a replay from moment to moment.

    `records` is the number of replayed records, `letters` how many dead letters each record makes, and `events` how
    many events of each kind. `reasons` has one for each record with dead letters.

    Args:
        replay: at the offsets `begin`, at which the table began.
        begin: these offsets.
        records: the records of each partition, from these offsets on.
        changes: of the table's settings, in order.
        on_progress: called after every `PROGRESS_EVERY` records with the number replayed so far.
    """

    def __init__(
        self,
        replay: Replay,
        begin: Ends,
        records: Mapping[PartitionName, Iterator[RawRecord]],
        changes: Sequence[Change] = (),
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._replay, self._begin, self._records = replay, begin, records
        self._changes = list(changes)
        self._on_progress = on_progress
        self._shards = [dict(begin)]  # how far each shard has read
        # The records that not all shards have read, and the next one.
        self._waiting: dict[PartitionName, list[RawRecord]] = {}
        self.at = dict(begin)
        self.records = 0
        self.letters: Counter[Place] = Counter()
        self.reasons: dict[Place, str] = {}
        self.events: Counter[Event] = Counter()

    def to(self, moment: Moment) -> bool:
        """Replay up to a moment. Return False if it is neither the same nor a later one than the one before."""
        if any(moment.ends.get(partition, self._begin.get(partition, 0)) < at for partition, at in self.at.items()):
            return False
        while self._changes and is_within(self._changes[0].ends, moment.ends):
            change = self._changes.pop(0)
            self._read([change.ends] * len(self._shards))
            self._split(change.shards)
            if change.forget_after_ms:
                self._replay.forget_after(change.forget_after_ms)
        self._split(len(moment.shards))
        self._read(moment.shards)
        self.at |= moment.ends
        return True

    def _split(self, shards: int) -> None:
        """Change the number of shards. All are where the first one of them is."""
        if shards == len(self._shards):
            return
        same: Ends = {}
        for positions in self._shards:
            same |= {partition: max(at, same.get(partition, 0)) for partition, at in positions.items()}
        self._read([same] * len(self._shards))
        self._shards = [dict(same) for _ in range(shards)]
        self._replay.split(shards)

    def _read(self, shards: Sequence[Ends]) -> None:
        """Apply the records up to the ends of each shard. The partitions are read side by side, by append time."""
        names = {name: None for ends in shards for name in ends}
        begins = {name: [positions.get(name, 0) for positions in self._shards] for name in names}
        ends = {
            name: [max(begin, one.get(name, 0)) for begin, one in zip(begins[name], shards, strict=True)]
            for name in names
        }
        streams = [self._below(name, max(ends[name])) for name in names]
        for name, record in merge(*streams, key=lambda one: one[1].timestamp_ms):
            for shard, (begin, end) in enumerate(zip(begins[name], ends[name], strict=True)):
                if begin <= record.offset < end:
                    self._apply(name, record, shard)
            if record.offset >= min(ends[name]):
                self._waiting[name].append(record)
                continue
            self.records += 1
            if self.records % PROGRESS_EVERY == 0:
                self._on_progress(self.records)
        for shard, positions in enumerate(self._shards):
            positions.update((name, ends[name][shard]) for name in names)

    def _below(self, name: PartitionName, end: int) -> Iterator[tuple[PartitionName, RawRecord]]:
        """Yield the records of a partition below an offset that not all shards have read. The next one waits."""
        waiting, self._waiting[name] = self._waiting.get(name, []), []
        for record in chain(waiting, self._records.get(name, ())):
            if record.offset >= end:
                self._waiting[name].append(record)
                break
            yield name, record

    def _apply(self, partition: PartitionName, record: RawRecord, shard: int) -> None:
        refused = self._replay.read(shard, partition, record.timestamp_ms, record.key, record.value)
        if refused:
            self.letters[partition, record.offset] += len(refused)
            self.reasons[partition, record.offset] = refused[0]
        if self._replay.events:
            self.events.update((partition, record.offset, *event) for event in self._replay.events)
            self._replay.events.clear()
