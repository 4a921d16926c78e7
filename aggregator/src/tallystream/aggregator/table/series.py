"""A run of records of one counter or one part of a life, of which compaction keeps the ends.

A run begins with a record that is kept. What follows waits: if the next one goes on with the run, the one that waits is
dropped, else it is kept and says how many it stands for. So of a run the first and the last are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream.aggregator.table.inputs import Folded, Record
from tallystream.aggregator.table.kinds import stored
from tallystream.aggregator.table.sketches import taken
from tallystream.reporter.record import MAX_COUNT, Counter, Metric, Position, identity
from tallystream.reporter.ulid import ulid_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.reporter.record import Snapshot

Row = tuple[int, int, bytes | None, bytes | None]
"""(offset, append time in epoch ms, key, value) of a record"""


class Place(NamedTuple):
    """The partition that records are of."""

    topic: str
    partition: int


class Run:
    """A counter of the short form: `value` is its last one, `waiting` the record that carried it, if it can be dropped.

    `clock` is the partition's clock at that record; `after` the value, and `first` the offset, of the record that was
    kept last.
    """

    __slots__ = ("after", "clock", "dropped", "first", "value", "waiting")

    def __init__(self) -> None:
        self.waiting: Row | None = None
        self.value = self.after = MAX_COUNT + 1  # above any: so the first value begins a run
        self.clock = self.dropped = self.first = 0

    def follow(self, row: Row, clock: int, value: int, records: int = 1) -> None:
        """Let the last of so many records, whose values do not fall, take the place of the one that waits."""
        self.dropped += records - (self.waiting is None)
        self.waiting, self.clock, self.value = row, clock, value

    def end(self, place: Place) -> list[Record]:
        """Return the record that waits, as one that stands for those before it; what follows begins a new run."""
        if self.waiting is None:
            return []
        kept = keep(place, self.waiting, self.clock, self.folded())
        self.waiting, self.after, self.dropped, self.first = None, self.value, 0, kept.offset
        return [kept]

    def folded(self) -> Folded | None:
        """Return what the record that waits stands for."""
        return Folded(self.dropped, self.after, self.first) if self.dropped else None


class SnapshotRun(Run):
    """A part of a life: `value` is the last seq, `metrics` those of that snapshot.

    `began` is the clock at the record that was kept last; `since` is the least of what was dropped, `last_since` that
    of the record that waits.
    """

    __slots__ = ("began", "last_since", "metrics", "since")

    def __init__(self, snapshot: Snapshot, row: Row, clock: int) -> None:
        super().__init__()
        self.first = row[0]
        self.value = self.after = snapshot.seq
        self.metrics: Sequence[Metric] = snapshot.metrics
        self.began = clock
        self.since = self.last_since = 0

    def goes_on(self, snapshot: Snapshot, clock: int, margin_ms: int) -> bool:
        """Tell whether a snapshot with a higher seq goes on with the run, so that the one that waits changes nothing.

        It does if it has the same metrics, in the same order, none of them lower, and none that is refused; and comes
        soon enough after the one that was kept last: nothing retires in between.
        """
        if clock - self.began >= margin_ms or len(snapshot.metrics) != len(self.metrics):
            return False
        for new, old in zip(snapshot.metrics, self.metrics, strict=True):
            kind = new.__class__
            if kind is not old.__class__ or new.name != old.name or new.tags != old.tags:
                return False
            if kind is Counter:
                if new.count < old.count:  # type: ignore[union-attr]
                    return False
            elif falls(new, old) or not is_good(new):
                return False
        return True

    def wait(self, row: Row, clock: int, snapshot: Snapshot) -> None:
        """Let a snapshot that goes on with the run take the place of the one that waits."""
        if self.waiting is not None:
            self.since = min(self.since, self.last_since) if self.dropped else self.last_since
        self.follow(row, clock, snapshot.seq)
        self.metrics, self.last_since = snapshot.metrics, since_ms(snapshot)

    def end(self, place: Place) -> list[Record]:
        """Return the snapshot that waits, as one that stands for those before it."""
        kept = super().end(place)
        if kept:
            self.began = self.clock
        return kept

    def has_more_than(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot has less of a metric than the one before: the table refuses that metric (rule 4)."""
        last = {identity(old.name, old.type, old.tags): old for old in self.metrics}
        found = ((new, last.get(identity(new.name, new.type, new.tags))) for new in snapshot.metrics)
        return any(old is not None and falls(new, old) for new, old in found)

    def folded(self) -> Folded | None:
        """Return what the snapshot that waits stands for."""
        return Folded(self.dropped, self.after, self.first, self.since) if self.dropped else None


def keep(place: Place, row: Row, clock: int, folded: Folded | None = None) -> Record:
    """Return a record as compaction passes it on."""
    return Record(place.topic, place.partition, *row, clock, folded)


def since_ms(snapshot: Snapshot) -> int:
    """Return the time from which the lateness of a snapshot counts, in epoch ms (rule 3)."""
    return ulid_ms(snapshot.life) if snapshot.prev is None else snapshot.prev


def is_whole(snapshot: Snapshot) -> bool:
    """Tell whether the table refuses nothing of a snapshot for what it is by itself."""
    metrics = snapshot.metrics
    return len({identity(m.name, m.type, m.tags) for m in metrics}) == len(metrics) and all(map(is_good, metrics))


def falls(new: Metric, old: Metric) -> bool:
    """Tell whether a newer metric of the same identity has less of what only grows: a count, a position."""
    if isinstance(new, Position):
        return new.position < old.position or new.start > old.start  # type: ignore[union-attr]
    return hasattr(new, "count") and new.count < old.count  # type: ignore[union-attr]


def is_good(metric: Metric) -> bool:
    """Tell whether the table takes a metric by itself: its numbers can be summed, its sketch can be read."""
    try:
        stored(metric)
        taken(metric)
    except (ValueError, OverflowError):
        return False
    return True
