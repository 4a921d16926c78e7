"""A shard of the replay: its lives, the time of each partition, and what they take in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from tallystream_aggregator.verify.decode import RejectedError
from tallystream_aggregator.verify.lives import Life, Row, Settings
from tallystream_aggregator.verify.sums import merged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.verify.decode import Identity

LifeName = tuple[str, str | None]
"""(app, life) within an instance. None stands for the short form."""

EventName = tuple[str, str, str, str, int, str]
"""(kind, app, instance, life, ts in epoch ms, detail)"""


PART_BYTES = 400
"""What a part of a life counts in the table, in bytes."""


class Room:
    """Counts the bytes of each app and of all apps, which may have `max_bytes`.

    `uses` counts the rows and baselines of each metric: a metric counts once. It is 0 if there were some.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._bytes: Counter[str] = Counter()  # by app, and of all apps
        self.uses: Counter[Identity] = Counter()

    def exceeded(self, app: str, more: int) -> str | None:
        """Return the limit that so many more bytes of an app would exceed, None if they would exceed none."""
        if self._bytes[app] + more > self.max_bytes * 3 // 4:
            return "bytes per app"
        return "bytes per table" if self._bytes[""] + more > self.max_bytes else None

    def exceeded_by(self, identity: Identity) -> str | None:
        """Return the limit that a row would exceed, None if it would exceed none."""
        return self.exceeded(identity[0], row_size(identity) + (0 if self.uses[identity] else _metric_size(identity)))

    def add(self, app: str, more: int) -> None:
        """Count more bytes of an app, or less."""
        self._bytes[app] += more
        self._bytes[""] += more

    def hold(self, identity: Identity, *, is_row: bool = True) -> None:
        """Count a row or a baseline. Forgotten lives have no rows, only their metrics count."""
        self.add(identity[0], row_size(identity) if is_row else 0)
        if not self.uses[identity]:
            self.add(identity[0], _metric_size(identity))
        self.uses[identity] += 1

    def release(self, identity: Identity, *, is_row: bool = True) -> None:
        """Count a row or a baseline no more."""
        self.add(identity[0], -(row_size(identity) if is_row else 0))
        self.uses[identity] -= 1
        if not self.uses[identity]:
            self.add(identity[0], -_metric_size(identity))


@dataclass(slots=True)
class Noted:
    """What records did beside changing lives, in all shards.

    `events` has the events of the records so far; the caller may clear it. `moved` are the instances with records in
    several partitions: their events depend on which partition is read first. `stale` counts stale snapshots.
    """

    events: list[EventName] = field(default_factory=list)
    moved: set[str] = field(default_factory=set)
    stale: int = 0
    partitions: dict[str, str] = field(default_factory=dict)
    """By instance, that of its first record."""


class Shard:
    """The instances of a shard, one of `of`, and their lives, which records change.

    It reads every partition, and has its own clock for each, as in "metrics:0": the highest append time of the records
    that it has read. One life stands for all forgotten ones.
    """

    def __init__(self, settings: Settings, noted: Noted, of: int = 1) -> None:
        self.settings, self.noted, self.of = settings, noted, of
        self.forget_after_ms = settings.forget_after_ms
        self.instances: dict[str, dict[LifeName, Life]] = {}
        self.forgotten = Life("", "", "", 0, 0, 0, forgotten=True)
        self.room = Room(settings.max_table_bytes)
        self.clocks: dict[str, int] = {}
        self.clock = 0
        """The time of the record's partition, epoch ms."""
        self.restarted: set[tuple[str, str]] = set()
        """The (app, instance) pairs that restarted with the record: each is one event."""
        self._kept_ms: dict[str, int] = {}  # no life of a partition has a lower one

    def take(self, instance: str, lives: dict[LifeName, Life]) -> None:
        """Take the lives of an instance over from another shard."""
        self.instances[instance] = lives
        for life in lives.values():
            self.room.add(life.app, life_size(instance, life.app, len(life.seqs)))
            for identity in chain(life.rows, life.baselines):
                self.room.hold(identity)

    def take_forgotten(self, forgotten: Life) -> None:
        """Take the forgotten lives over from another shard."""
        self.forgotten = forgotten
        for identity in forgotten.rows:
            self.room.hold(identity, is_row=False)

    def advance(self, partition: str, timestamp_ms: int) -> int:
        """Advance the clock of a partition by the append time of its next record, and return it."""
        self.clock = self.clocks[partition] = max(timestamp_ms, self.clocks.get(partition, 0))
        self.restarted = set()
        return self.clock

    def lives(self) -> Iterator[Life]:
        """Yield all lives, and the one that stands for forgotten lives."""
        yield from chain(*(lives.values() for lives in self.instances.values()), [self.forgotten])

    def is_living(self, life: Life) -> bool:
        """Return whether a life is living (rule 5)."""
        return not (life.final or life.forgotten) and self.clocks[life.partition] < life.deadline_ms

    def forget(self, partition: str, end_ms: int) -> None:
        """Forget the lives of a partition that are due at this time: their counts stay in the sums."""
        if end_ms - self._kept_ms.get(partition, 0) < self.forget_after_ms:
            return
        kept_ms = end_ms
        for instance, lives in list(self.instances.items()):
            for name, life in list(lives.items()):
                if life.partition != partition or life.is_short:
                    continue
                if end_ms - life.keep_ms >= self.forget_after_ms:
                    self._forget_life(life)
                    self.drop(lives.pop(name))
                    if not lives:
                        del self.instances[instance]
                else:
                    kept_ms = min(kept_ms, life.keep_ms)
        self._kept_ms[partition] = kept_ms

    def _forget_life(self, life: Life) -> None:
        forgotten = self.forgotten
        for identity in list(life.rows):
            rows = [one.counted(identity) for one in (forgotten, life) if identity in one.rows]
            left = merged(identity[1], rows)
            if left is not None:
                if identity not in forgotten.rows:
                    self.room.hold(identity, is_row=False)
                forgotten.rows[identity] = left
            self.remove_row(life, identity)

    def event(self, kind: str, app: str, instance: str, life: str | None, detail: str = "") -> None:
        """Note an event of the present record."""
        self.noted.events.append((kind, app, instance, life or "", self.clock, detail))

    def note_partition(self, instance: str, partition: str) -> None:
        """Note that an instance has a record in a partition."""
        if self.noted.partitions.setdefault(instance, partition) != partition:
            self.noted.moved.add(instance)

    def reached(self, life: Life, name: str | None, limit: str) -> None:
        """Note the event that a life reaches a limit, once."""
        if limit not in life.limits:
            life.limits.add(limit)
            self.event("limit", life.app, life.instance, name, limit)

    def limit(self, life: Life, identity: Identity) -> str | None:
        """Return the limit that a new row would exceed (rule 11), None if it would exceed none."""
        if len(life.rows) >= self.settings.max_metrics:
            return "metrics per life"
        if life.bytes + text_size(identity) > 256 * self.settings.max_metrics:
            return "bytes of metrics per life"
        return self.room.exceeded_by(identity)

    def drop(self, life: Life) -> None:
        """Note that a life without rows is gone."""
        self.room.add(life.app, -life_size(life.instance, life.app, len(life.seqs)))
        for identity in life.baselines:
            self.room.release(identity)

    def life(self, instance: str, name: LifeName, partition: str, every_ms: int) -> Life:
        """Return a life, a new one if there is none, and note the time of this record.

        Raises:
            RejectedError: there is no room for a new one.
        """
        life = self.instances.get(instance, {}).get(name)
        if life is None:
            app, is_short = name[0], name[1] is None
            if limit := self.room.exceeded(app, life_size(instance, app, parts=0 if is_short else 1)):
                self.event("limit", app, instance, name[1], limit)
                raise RejectedError(f"no room for a life: {limit}")
            life = Life(app, instance, partition, every_ms, self.clock, self.clock, is_short=is_short)
            self.instances.setdefault(instance, {})[name] = life
            self.room.add(app, life_size(instance, app, parts=0))
        life.keep_ms = max(self.clock, life.keep_ms)
        return life

    def set_row(self, life: Life, identity: Identity, row: Row) -> None:
        """Add a row to a life, or replace it."""
        if identity not in life.rows:
            life.bytes += text_size(identity)
            self.room.hold(identity)
        life.rows[identity] = row

    def remove_row(self, life: Life, identity: Identity) -> None:
        """Remove a row from a life."""
        del life.rows[identity]
        life.bytes -= text_size(identity)
        self.room.release(identity, is_row=not life.forgotten)


def life_size(instance: str, app: str, parts: int) -> int:
    """Return what a life counts without its rows, in bytes."""
    return 2_000 + PART_BYTES * parts + 4 * len((instance + app).encode())


def text_size(identity: Identity) -> int:
    """Return the bytes of the name and the tags of a metric."""
    return len(identity[2].encode()) + sum(len(name.encode()) + len(value.encode()) for name, value in identity[3])


def row_size(identity: Identity) -> int:
    """Return what a metric counts for each life that has it, in bytes."""
    return (200 if identity[1] == "counter" else 600) + _bounds_size(identity)


def _metric_size(identity: Identity) -> int:
    of_type = 1_600 if identity[1] == "counter" else 4_000
    return of_type + _bounds_size(identity) + 500 * len(identity[3]) + 4 * text_size(identity)


def _bounds_size(identity: Identity) -> int:
    return 16 * int(dict(identity[3])["bounds"].split("-")[0]) if identity[1] == "buckets" else 0
