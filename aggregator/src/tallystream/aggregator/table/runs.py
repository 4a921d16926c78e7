"""A run of records of one counter or one part of a life, of which compaction keeps the first and the last.

The newest record waits. If the next one goes on with the run, the one that waits is superseded and left out; else it is
kept, and says how many it supersedes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream.aggregator.table.inputs import Record, Superseded
from tallystream.aggregator.table.kinds import stored
from tallystream.aggregator.table.sketches import taken
from tallystream.reporter.record import Counter, Histogram, Metric, Position, identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.reporter.record import Snapshot

RawRecord = tuple[int, int, bytes | None, bytes | None]
"""(offset, append time in epoch ms, key, value) of a record"""


class Place(NamedTuple):
    """The partition that records are of."""

    topic: str
    partition: int


class Run:
    """A counter of the short form: `value` is its newest one, `waiting` the record that carried it, if not yet kept.

    `clock` is the clock at that record; `superseded` how many records it supersedes, -1 where none waits; `first` and
    `after` are the offset and the value of the record that was kept last.
    """

    __slots__ = ("after", "clock", "first", "superseded", "value", "waiting")

    def __init__(self, value: int) -> None:
        self.waiting: RawRecord | None = None
        self.value = self.after = value
        self.clock = self.first = 0
        self.superseded = -1

    def begin(self, offset: int, value: int) -> None:
        """Begin with a record that is kept."""
        self.first, self.value, self.after = offset, value, value

    def follow(self, row: RawRecord, clock: int, value: int) -> None:
        """Let a record supersede the one that waits."""
        self.superseded += 1
        self.waiting, self.clock, self.value = row, clock, value

    def end(self, place: Place) -> list[Record]:
        """Return the record that waits, if one does; the next one may go on after it."""
        if self.waiting is None:
            return []
        superseded = Superseded(self.superseded, self.after, self.first) if self.superseded else None
        kept = keep(place, self.waiting, self.clock, superseded)
        self.waiting, self.superseded = None, -1
        self.begin(kept.offset, self.value)
        return [kept]


class SnapshotRun(Run):
    """A part of a life: `value` is the highest seq, `metrics` those of its snapshot, None where no run has begun.

    `falls` tells that a snapshot had less of a metric than the one before it.
    """

    __slots__ = ("falls", "metrics")

    def __init__(self) -> None:
        super().__init__(0)
        self.metrics: Sequence[Metric] | None = None
        self.falls = False

    def goes_on(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot goes on with the run, so that the one that waits changes nothing.

        It does if it has a higher seq and the same metrics, in the same order, none of them lower or refused. After a
        fall no run goes on: the table refuses the metric until it has risen above the highest count again.
        """
        metrics = self.metrics
        if self.falls or metrics is None or snapshot.seq <= self.value or len(snapshot.metrics) != len(metrics):
            return False
        for new, old in zip(snapshot.metrics, metrics, strict=True):
            kind = new.__class__
            if kind is not old.__class__ or new.name != old.name or new.tags != old.tags:
                return False
            if kind is Counter:
                if new.count < old.count:  # type: ignore[union-attr]
                    return False
            elif falls(new, old) or narrows(new, old) or not is_good(new):
                return False
        return True

    def has_more_than(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot has less of a metric than the one before: the table refuses that metric (rule 4)."""
        last = {identity(old.name, old.type, old.tags): old for old in self.metrics or ()}
        found = ((new, last.get(identity(new.name, new.type, new.tags))) for new in snapshot.metrics)
        return any(old is not None and falls(new, old) for new, old in found)


def keep(place: Place, row: RawRecord, clock: int, superseded: Superseded | None = None) -> Record:
    """Return a record as compaction passes it on."""
    return Record(place.topic, place.partition, *row, clock, superseded)


def is_whole(snapshot: Snapshot) -> bool:
    """Tell whether the table refuses nothing of a snapshot for what it is by itself."""
    metrics = snapshot.metrics
    return len({identity(m.name, m.type, m.tags) for m in metrics}) == len(metrics) and all(map(is_good, metrics))


def falls(new: Metric, old: Metric) -> bool:
    """Tell whether a newer metric of the same identity has less of what only grows: a count, a position."""
    if isinstance(new, Position):
        return new.position < old.position or new.start > old.start  # type: ignore[union-attr]
    return hasattr(new, "count") and new.count < old.count  # type: ignore[union-attr]


def narrows(new: Metric, old: Metric) -> bool:
    """Tell whether a newer histogram or timer has a greater min or a smaller max: within a life both only widen."""
    if not isinstance(new, Histogram) or not isinstance(old, Histogram):
        return False
    return (old.min is not None and (new.min is None or new.min > old.min)) or (
        old.max is not None and (new.max is None or new.max < old.max)
    )


def is_good(metric: Metric) -> bool:
    """Tell whether the table takes a metric by itself: its numbers can be summed, its sketch can be read."""
    try:
        stored(metric)
        taken(metric)
    except (ValueError, OverflowError):
        return False
    return True
