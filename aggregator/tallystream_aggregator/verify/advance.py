"""Replays the records of a topic up to given moments, each shard up to its own positions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.verify.published import PartitionName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tallystream_aggregator.verify.decode import RawRecord
    from tallystream_aggregator.verify.published import Ends, Moment
    from tallystream_aggregator.verify.replay import Replay

Place = tuple[str, int]
"""The partition and the offset of a record."""


Event = tuple[PartitionName, int, str, str, str, str, int, str]
"""The partition and the offset of its record, and (kind, app, instance, life, ts, detail)."""


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
        until: `until(partition, end)` returns the next records of a partition with offsets below `end`, each once.
        changes: of the table's settings, in order.
        on_record: called after every record with the number replayed so far.
    """

    def __init__(
        self,
        replay: Replay,
        begin: Ends,
        until: Callable[[PartitionName, int], Iterable[RawRecord]],
        changes: Sequence[Change],
        on_record: Callable[[int], None],
    ) -> None:
        self._replay, self._begin, self._until = replay, begin, until
        self._changes = list(changes)
        self._on_record = on_record
        # Records that not all shards have read, each with the shards that have not.
        self._waiting: dict[PartitionName, list[tuple[RawRecord, frozenset[int]]]] = {}
        self.at = dict(begin)
        self.records = 0
        self.letters: Counter[Place] = Counter()
        self.reasons: dict[Place, str] = {}
        self.events: Counter[Event] = Counter()

    def to(self, moment: Moment) -> bool:
        """Replay up to a moment. Return False if it is neither the same nor a later one than the one before."""
        if any(moment.ends.get(partition, self._begin.get(partition, 0)) < at for partition, at in self.at.items()):
            return False
        while self._changes and _is_within(self._changes[0].ends, moment.ends):
            change = self._changes.pop(0)
            self._read([change.ends] * self._replay.shards)
            self._split(change.shards)
            if change.forget_after_ms:
                self._replay.forget_after(change.forget_after_ms)
        self._split(len(moment.shards))
        self._read(moment.shards)
        for partition, end in moment.ends.items():
            self.at[partition] = end
        return True

    def _split(self, shards: int) -> None:
        if shards != self._replay.shards:
            for partition, waiting in self._waiting.items():
                for record, left in waiting:
                    self._apply(partition, record, left)
            self._waiting.clear()
            self._replay.split(shards)

    def _read(self, shards: Sequence[Ends]) -> None:
        """Apply the records that each shard has read."""
        numbers = frozenset(range(len(shards)))
        for partition in {name: None for ends in shards for name in ends}:
            ends = [one.get(partition, 0) for one in shards]
            waiting = self._waiting.pop(partition, [])
            lowest = min(ends)
            left: list[tuple[RawRecord, frozenset[int]]] = []
            for record, not_yet in waiting:
                self._read_record(partition, record, not_yet, ends, left)
            for record in self._until(partition, max(ends)):
                if record.offset < lowest:
                    self._apply(partition, record, numbers)
                else:
                    self._read_record(partition, record, numbers, ends, left)
                self.records += 1
                self._on_record(self.records)
            if left:
                self._waiting[partition] = left

    def _read_record(
        self,
        partition: PartitionName,
        record: RawRecord,
        shards: frozenset[int],
        ends: Sequence[int],
        left: list[tuple[RawRecord, frozenset[int]]],
    ) -> None:
        """Apply a record in those shards that have read it, and add it to `left` for the others."""
        now = frozenset(shard for shard in shards if record.offset < ends[shard])
        if now:
            self._apply(partition, record, now)
        if shards - now:
            left.append((record, shards - now))

    def _apply(self, partition: PartitionName, record: RawRecord, shards: frozenset[int]) -> None:
        refused = self._replay.apply(partition, record.timestamp_ms, record.key, record.value, shards)
        if refused:
            self.letters[partition, record.offset] += len(refused)
            self.reasons[partition, record.offset] = refused[0]
        if self._replay.events:
            self.events.update((partition, record.offset, *event) for event in self._replay.events)
            self._replay.events.clear()


def _is_within(ends: Ends, others: Ends) -> bool:
    return all(end <= others.get(partition, 0) for partition, end in ends.items())
