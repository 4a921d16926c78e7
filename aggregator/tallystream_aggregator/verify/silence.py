"""Tells which lives are silent: rule 5 of docs/table.md, applied to the batches of the ledger.

The table checks for silent lives at the end of a batch, in the shards that have a record in it. A partition's time is
its clock, plus the wall time since the last batch that had records of it. Each shard has its own clocks and wall times.
A silent life stays silent until its next record that is not stale.

Each time has a lower and an upper bound. They differ where the ledger does not have the facts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.verify.lives import Life
    from tallystream_aggregator.verify.published import Ends, PartitionName

ShardPartition = tuple[int, "PartitionName"]


class Batch(NamedTuple):
    """A finished batch of the ledger: its time in epoch ms, and its start and end offsets.

    `start` is None if unknown. `waiting` are the partitions of which the batch may have left records unread, None if
    unknown. `begins` is true for the first batch of a checkpoint that the ledger has. `shards` is None if the ledger
    does not have it. If the batch `follows_gap`, the ledger lacks the batches before it, and `start` is that of the
    first of them.
    """

    epoch: int
    number: int
    ts_ms: int
    start: Ends | None
    end: Ends
    waiting: frozenset[PartitionName] | None = frozenset()
    begins: bool = False
    shards: int | None = 1
    follows_gap: bool = False


class Highest:
    """The highest time since a batch. A time is dropped when a later one is at least as high."""

    def __init__(self) -> None:
        self._at: list[int] = []
        self._times: list[int] = []

    def note(self, at: int, time_ms: int) -> None:
        """Add the time of the batch with index `at`, which never decreases."""
        while self._times and self._times[-1] <= time_ms:
            self._at.pop()
            self._times.pop()
        self._at.append(at)
        self._times.append(time_ms)

    def since(self, at: int) -> int:
        """Return the highest time of the batches from index `at` on, 0 if there are none."""
        place = bisect_left(self._at, at)
        return self._times[place] if place < len(self._times) else 0


class Silence:
    """Tells which lives are silent at the end of each batch. `number` is the index of the current batch."""

    def __init__(self) -> None:
        self.number = 0
        self._shards: int | None = None
        self._was_split = False
        self._ran: set[int] = set()  # shards that have run since the number of shards changed
        self._since_ms = self._last_ms = 0  # times of the first and the last batch of the checkpoint
        self._read: set[ShardPartition] = set()
        self._clocks: dict[ShardPartition, int] = {}
        self._highest_clocks: dict[ShardPartition, int] = {}  # if higher than in _clocks
        self._seen: dict[ShardPartition, tuple[int, int]] = {}  # the earliest and the latest wall time of its last read
        self._rebuilt_in: int | None = None
        self._shards_changed = False
        self._confirmed: set[int] = set()  # shards that have run since the first batch of the checkpoint
        self._timestamp_ms = 0  # of the last record
        self._lower: defaultdict[ShardPartition, Highest] = defaultdict(Highest)
        self._upper: defaultdict[ShardPartition, Highest] = defaultdict(Highest)

    def tick(self, key: bytes | None, place: PartitionName, timestamp_ms: int) -> int:
        """Add a record's append time, and return the clock of its shard and partition."""
        at = self._shard(key or b""), place
        self._read.add(at)
        self._timestamp_ms = timestamp_ms
        self._clocks[at] = max(timestamp_ms, self._clocks.get(at, 0))
        if self._highest_clocks.get(at, 0) <= self._clocks[at]:
            self._highest_clocks.pop(at, None)
        return self._clocks[at]

    def mark_active(self, life: Life, partition: PartitionName, every_ms: int, clock_ms: int) -> None:
        """Note a life's record that is not stale. `clock_ms` is what `tick` returned for the record."""
        life.partition, life.every_ms, life.active_ms, life.active_in = partition, every_ms, clock_ms, self.number
        life.silent = False
        if (most := self._highest_clocks.get(self._partition_of(life))) is not None:
            life.active_ms, life.silent = most, None
        # A batch that the ledger lacks may have read the record before the table was rebuilt, with a lower clock.
        if self.number == self._rebuilt_in and (self._shards_changed or self._timestamp_ms < clock_ms):
            life.silent = None

    def living(self, life: Life, at_ms: int, *, noticed: bool) -> bool:
        """Return whether a life is living.

        `at_ms` is the time of a batch after the last one in the ledger, or 0. With `noticed`, silence counts if the
        table may have noticed it; without it, only if the table must have noticed it.
        """
        if life.final or life.uncertain or life.silent or (noticed and life.silent is None):
            return False
        at, deadline_ms = self._partition_of(life), life.deadline_ms
        if noticed:
            return max(at_ms, self._highest_clock(at), self._upper[at].since(life.active_in)) < deadline_ms
        if self._shards is None or (life.silent is None and at[0] not in self._confirmed):
            return True
        return max(self._clocks[at], self._lower[at].since(life.active_in)) < deadline_ms

    def begin(self, batch: Batch, lives: Iterable[Life]) -> None:
        """Process the start of a checkpoint, whose first batch is `batch`.

        A rebuilt table knows which of `lives` were silent. It does not know when its partitions were last read, and
        may have had batches that the ledger lacks.
        """
        for at in self._clocks:
            self._note(at, self._clocks[at], self._time(at, batch.ts_ms, earliest=True))
        found = [(life, self.living(life, 0, noticed=True), self.living(life, 0, noticed=False)) for life in lives]
        self._shards_changed = batch.shards != self._shards
        self._set_shards(batch.shards)
        for life, surely, uncertain in found:
            if self._shards_changed:
                life.silent = None
            elif not uncertain:
                life.silent = True
            elif not surely:
                life.silent = None
        self._confirmed = set()
        self._rebuilt_in = self.number if batch.begins and self.number else None
        self._seen.clear()
        self._lower.clear()
        self._upper.clear()
        self._since_ms = self._last_ms = batch.ts_ms if batch.begins and not batch.follows_gap else 0

    def skip_batches(self, ts_ms: int) -> None:
        """Update the times at the end of batches that the ledger lacks. They ran before `ts_ms`."""
        ran = {shard for shard, _ in self._read}
        for at, clock in self._clocks.items():
            if at[0] not in ran:
                continue
            self._note(at, clock, self._latest(at, ts_ms))
            if at in self._read or at not in self._seen:
                self._seen[at] = self._last_ms, ts_ms
        self._end(ran)

    def evaluate(self, batch: Batch) -> None:
        """Update the times at the end of a batch, after its records were applied."""
        ran = {shard for shard, _ in self._read}
        for at, clock in self._clocks.items():
            if at[0] not in ran:
                continue
            if at in self._read or at not in self._seen:
                self._seen[at] = batch.ts_ms, batch.ts_ms
            else:  # a later time was measured before the wall clock was set back
                first, last = self._seen[at]
                self._seen[at] = min(first, batch.ts_ms), min(last, batch.ts_ms)
            most = self._latest(at, batch.ts_ms)
            if self.number == self._rebuilt_in or batch.waiting is None:
                self._note(at, clock, most)
            elif at[1] in batch.waiting:
                self._note(at, clock, clock)
            else:
                self._note(at, self._time(at, batch.ts_ms, earliest=False), most)
        self._end(ran)
        self._last_ms = batch.ts_ms

    def _end(self, ran: set[int]) -> None:
        self._ran |= ran
        if self.number != self._rebuilt_in:
            self._confirmed |= ran
        self._read.clear()
        self.number += 1

    def _note(self, at: ShardPartition, least_ms: int, most_ms: int) -> None:
        self._lower[at].note(self.number, least_ms)
        self._upper[at].note(self.number, most_ms)

    def _time(self, at: ShardPartition, now_ms: int, *, earliest: bool) -> int:
        """Return a partition's time: its clock, plus the wall time since its earliest or latest possible read."""
        first, last = self._seen.get(at, (self._since_ms, now_ms))
        clock = self._highest_clock(at) if earliest else self._clocks[at]
        return clock + max(0, now_ms - (first if earliest else last))

    def _latest(self, at: ShardPartition, now_ms: int) -> int:
        """Return the highest time that a partition may have at the end of a batch."""
        most = self._time(at, now_ms, earliest=True)
        if self.number != self._rebuilt_in:
            return most
        # A batch that the ledger lacks may have read these records in other shards, which had other clocks.
        return max(most, *(self._highest_clock(other) for other in self._clocks if other[1] == at[1]))

    def _highest_clock(self, at: ShardPartition) -> int:
        """Return the highest possible clock."""
        return self._highest_clocks.get(at, self._clocks[at])

    def _set_shards(self, shards: int | None) -> None:
        """Set the number of shards. A shard that has not run since it changed has the highest clocks of all shards.

        If the table was rebuilt again since the change, such a shard may have its own clocks instead: it may have run
        in a batch that the ledger lacks.
        """
        highest: dict[PartitionName, int] = {}
        for at in self._clocks:
            highest[at[1]] = max(self._highest_clock(at), highest.get(at[1], 0))
        shared = {(shard, place): clock for shard in range(shards or 1) for place, clock in highest.items()}
        if shards != self._shards:
            self._shards, self._ran, self._was_split = shards, set(), True
            self._clocks, self._highest_clocks = shared, {}
        elif self._was_split:
            for at, most in shared.items():
                if self._clocks.setdefault(at, 0) < most and at[0] not in self._ran:
                    self._highest_clocks[at] = most

    def _partition_of(self, life: Life) -> ShardPartition:
        return self._shard(life.instance.encode()), life.partition

    def _shard(self, key: bytes) -> int:
        return crc32(key) % (self._shards or 1)
