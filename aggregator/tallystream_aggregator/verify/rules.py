"""The rules of docs/table.md for the records of one instance, with plain dicts: easy to check."""

from __future__ import annotations

from collections import Counter as Numbers
from itertools import chain
from typing import TYPE_CHECKING
from zlib import crc32

from tallystream.record import Counter, ShortForm
from tallystream.ulid import ulid_ms
from tallystream_aggregator.verify import decode
from tallystream_aggregator.verify.decode import Forget, RejectedError, has_metric, identify
from tallystream_aggregator.verify.lives import (
    MAX_INT64,
    Block,
    Life,
    Row,
    Settings,
    main_count,
    require_valid,
    widen,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream.record import Snapshot
    from tallystream_aggregator.verify.decode import Identity, Read

LATE_MS = 86_400_000
"""In ms. A record is refused this long after its `prev`, or more than this before the time of its ULID (rule 3)."""

LATE_START_NS = 60 * 10**9
"""A stream of OTLP may begin up to so many ns after the time of its first point. Then it began at that time."""

LifeName = tuple[str, str | None]
"""(app, life) within an instance. None stands for the short form."""

EventName = tuple[str, str, str, str, int, str]
"""(kind, app, instance, life, ts in epoch ms, detail)"""

PART_BYTES = 400
"""What a part of a life counts in the table."""

MAX_LETTERS = 10
"""The most dead letters of single metrics that a record makes, and of other parts of it. The others share one."""


class Rules:
    """The lives, which records change. `shards` is the number of the table's shards.

    `events` has the events of the records so far; the caller may clear it. `moved` are the instances with records in
    several partitions: their events depend on which partition is read first. `stale` counts stale snapshots.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._instances: dict[str, dict[LifeName, Life]] = {}
        self._uses: Numbers[Identity] = Numbers()  # the rows and baselines of each metric, 0 if there were some
        self._bytes: Numbers[str] = Numbers()  # by app, and of all apps
        self._clock = 0  # the time of the record's partition, epoch ms
        self.shards = 1
        self.stale = 0
        self.events: list[EventName] = []
        self.moved: set[str] = set()
        self._forgotten: dict[int, Life] = {}  # by shard: one for all of its forgotten lives
        self._partitions: dict[str, str] = {}  # by instance: that of its first record

    def _event(self, kind: str, app: str, instance: str, life: str | None, detail: str = "") -> None:
        self.events.append((kind, app, instance, life or "", self._clock, detail))

    def _note_partition(self, instance: str, partition: str) -> None:
        if self._partitions.setdefault(instance, partition) != partition:
            self.moved.add(instance)

    def _reached(self, life: Life, name: str | None, limit: str) -> None:
        """Note the event that a life reaches a limit, once."""
        if limit not in life.limits:
            life.limits.add(limit)
            self._event("limit", life.app, life.instance, name, limit)

    def _apply(self, partition: str, timestamp_ms: int, instance: str, value: bytes | None) -> list[str]:
        """Apply a record of an instance, and return the reasons of its dead letters.

        Raises:
            RejectedError: the whole record is refused.
        """
        self._note_partition(instance, partition)
        if value is None:
            self._tombstone(instance, partition)
            return []
        if len(value) > self._settings.max_record_bytes:
            self._event("limit", "", instance, "", "record size")
            raise RejectedError("the record is too large")
        message = decode.read(value, self._settings.max_metrics)
        if isinstance(message, Forget):
            if message.metric is None:
                self._tombstone(instance, partition, message)
            elif self.shards != message.shards:
                raise RejectedError("forget: for another number of shards than the table has")
            else:
                self._forget_metric(message, instance, partition)
            return []
        if isinstance(message, ShortForm):
            return self._short_form(instance, partition, message)
        if self._replace(partition, timestamp_ms, instance, message):
            return []
        return letters(*self._snapshot(instance, partition, timestamp_ms, message))

    def _replace(self, partition: str, timestamp_ms: int, instance: str, message: Read) -> bool:
        """Apply a snapshot that only replaces the values of the one before. Return False if it does anything else."""
        snapshot = message.snapshot
        if message.refused or message.over_limit:
            return False
        life = self._instances.get(instance, {}).get((snapshot.app, snapshot.life))
        block = None if life is None or life.partition != partition else life.blocks.get(snapshot.part)
        if life is None or block is None or _out_of_bounds(snapshot, life.created_ms, timestamp_ms) is not None:
            return False
        is_newer = snapshot.complete and snapshot.seq > life.seqs[snapshot.part]
        if not is_newer or not block.replace(snapshot):
            return False
        life.keep_ms = max(self._clock, life.keep_ms)
        self._make_newest(life, partition, snapshot)
        return True

    def _make_newest(self, life: Life, partition: str, snapshot: Snapshot) -> None:
        if life.partition != partition:
            life.current_parts.clear()
        life.current_parts.add(snapshot.part)
        life.seqs[snapshot.part], life.final = snapshot.seq, snapshot.final
        self._mark_active(life, partition, snapshot.every_ms)

    def _snapshot(self, instance: str, partition: str, timestamp_ms: int, message: Read) -> tuple[list[str], list[str]]:
        """Apply a snapshot. Return why metrics are refused, and other reasons of dead letters."""
        snapshot = message.snapshot
        created = ulid_ms(snapshot.life)
        reason = _out_of_bounds(snapshot, created, timestamp_ms)
        if reason is not None:
            raise RejectedError(reason)
        life = self._life_of(instance, partition, snapshot, created)
        if snapshot.seq <= life.seqs.get(snapshot.part, 0):
            self.stale += 1
            if not life.complete or life.partition != partition or snapshot.part not in life.current_parts:
                self._add(life, message)  # what would be refused has no dead letter
            return [], []
        self._make_newest(life, partition, snapshot)
        refused, limits = self._add(life, message)
        exceeded = [*limits, *["metrics per record"] * message.over_limit]
        for limit in exceeded:
            self._reached(life, snapshot.life, limit)
        return refused, [f"too many {limit}" for limit in exceeded]

    def _life_of(self, instance: str, partition: str, snapshot: Snapshot, created_ms: int) -> Life:
        """Return the life of a snapshot, which may be new."""
        known = self._instances.get(instance, {}).get((snapshot.app, snapshot.life))
        if known is not None and known.complete != snapshot.complete:
            raise RejectedError("complete differs from that of the life's earlier snapshots")
        if known is None:
            self._require_room(snapshot.app, instance, snapshot.life, _life_size(instance, snapshot.app) + PART_BYTES)
            if self._is_restart(instance, snapshot, created_ms):
                self._event("restart", snapshot.app, instance, snapshot.life)
        life = self._life(instance, (snapshot.app, snapshot.life), partition, snapshot.every_ms)
        life.keep_ms, life.complete, life.created_ms = max(life.keep_ms, created_ms), snapshot.complete, created_ms
        if snapshot.part not in life.seqs:
            if limit := self._over(life.app, PART_BYTES):
                self._reached(life, snapshot.life, limit)
                raise RejectedError(f"no room for a part: {limit}")
            self._count(life.app, PART_BYTES)
        return life

    def _is_restart(self, instance: str, snapshot: Snapshot, created_ms: int) -> bool:
        """Return whether a new life is a restart of its instance (rule 2; docs/otlp.md, "Restart events")."""
        lives = self._instances.get(instance, {}).values()
        others = [life for life in lives if life.app == snapshot.app and not life.is_short]
        if snapshot.complete:
            return bool(others)
        begin_ns = created_ms * 10**6
        if 0 < begin_ns - snapshot.seq < LATE_START_NS:
            begin_ns = snapshot.seq
        others = [life for life in others if life.complete or life.created_ms]
        newest_ns = max((seq for life in others if not life.complete for seq in life.seqs.values()), default=0)
        return bool(others) and begin_ns > 0 and newest_ns < begin_ns

    def _add(self, life: Life, message: Read) -> tuple[list[str], set[str]]:
        """Add the metrics of a snapshot. Return why metrics are refused, and the limits that they exceed.

        Of each metric, the highest count and then the highest seq counts. Every value widens min, max and positions.
        If nothing is refused of a complete snapshot, the next one may replace all of its values at once.
        """
        snapshot, refused = message.snapshot, list(message.refused)
        limits: set[str] = set()
        seen: dict[Identity, None] = {}
        life.blocks.pop(snapshot.part, None)
        for values in snapshot.metrics:
            try:
                require_valid(values)
            except (ValueError, OverflowError) as error:
                refused.append(str(error))
                continue
            identity = identify(life.app, values)
            before = life.rows.get(identity)
            if identity in seen:
                refused.append("the snapshot has this metric twice")
            elif before is None and (limit := self._limit(life, identity)):
                limits.add(limit)
            elif before is not None and before.part != snapshot.part:
                refused.append("the metric was in another part of this life")
            elif before is not None and (main_count(values), snapshot.seq) <= (main_count(before.values), before.seq):
                refused.append("the count falls")
                widen(before.values, values)
            else:
                if before is not None:
                    widen(values, before.values)
                self._set(life, identity, Row(values, snapshot.part, snapshot.seq))
            seen[identity] = None
        if snapshot.complete and not (refused or limits or message.over_limit):
            life.blocks[snapshot.part] = Block(snapshot, [life.rows[identity] for identity in seen])
        if message.baseline:
            self._add_baselines(life, snapshot)
        return refused, limits

    def _add_baselines(self, life: Life, snapshot: Snapshot) -> None:
        """Leave the numbers of a snapshot out of the sums: of each metric, those of its highest count."""
        first = {identify(life.app, one): one for one in reversed(snapshot.metrics)}
        for identity, values in first.items():
            known = life.baselines.get(identity)
            if identity in life.rows and main_count(values) > (0 if known is None else main_count(known)):
                life.baselines[identity] = values
                if known is None:
                    self._uses[identity] += 1
                    self._count(life.app, row_size(identity))

    def _short_form(self, instance: str, partition: str, message: ShortForm) -> list[str]:
        if ("default", None) not in self._instances.get(instance, {}):
            self._require_room("default", instance, None, _life_size(instance, "default"))
        life = self._life(instance, ("default", None), partition, self._settings.short_form_every_ms)
        self._mark_active(life, partition, self._settings.short_form_every_ms)
        values = Counter(name=message.name, tags=message.tags, count=message.value)
        identity, last = identify("default", values), message.value
        before = life.rows.get(identity)
        if before is None and (limit := self._limit(life, identity)):
            self._reached(life, None, limit)
            raise RejectedError(f"too many {limit}")
        if before is not None:
            values.count += before.values.count - (before.last if last >= before.last else 0)
        if values.count > MAX_INT64:
            raise RejectedError("the sum over its restarts leaves 64 bits")
        if before is not None and last < before.last:
            self._event("restart", life.app, instance, None, message.name)
        self._set(life, identity, Row(values, last=last))
        return []

    def _limit(self, life: Life, identity: Identity) -> str | None:
        """Return the limit that a new row would exceed (rule 11), None if it would exceed none."""
        if len(life.rows) >= self._settings.max_metrics:
            return "metrics per life"
        if life.bytes + _text_size(identity) > 256 * self._settings.max_metrics:
            return "bytes of metrics per life"
        return self._over(life.app, row_size(identity) + (0 if self._uses[identity] else _metric_size(identity)))

    def _over(self, app: str, more: int) -> str | None:
        """Return the limit that so many more bytes of an app would exceed, None if they would exceed none."""
        most = self._settings.max_table_bytes * self.shards  # each of them may have as much
        if self._bytes[app] + more > most * 3 // 4:
            return "bytes per app"
        return "bytes per table" if self._bytes[""] + more > most else None

    def _require_room(self, app: str, instance: str, life: str | None, more: int) -> None:
        """Refuse a new life if there is no room for it."""
        if limit := self._over(app, more):
            self._event("limit", app, instance, life, limit)
            raise RejectedError(f"no room for a life: {limit}")

    def _count(self, app: str, more: int) -> None:
        self._bytes[app] += more
        self._bytes[""] += more

    def _drop(self, life: Life) -> None:
        """Note that a life without rows is gone."""
        self._count(life.app, -_life_size(life.instance, life.app) - PART_BYTES * len(life.seqs))
        for identity in life.baselines:
            self._count(life.app, -row_size(identity))
            self._no_longer_use(identity)

    def _life(self, instance: str, name: LifeName, partition: str, every_ms: int) -> Life:
        """Return a life, a new one if there is none, and note the time of this record."""
        lives = self._instances.setdefault(instance, {})
        life = lives.get(name)
        if life is None:
            life = Life(name[0], instance, partition, every_ms, self._clock, self._clock, is_short=name[1] is None)
            lives[name] = life
            self._count(life.app, _life_size(instance, life.app))
        life.keep_ms = max(self._clock, life.keep_ms)
        return life

    def _mark_active(self, life: Life, partition: str, every_ms: int) -> None:
        life.partition, life.every_ms, life.active_ms = partition, every_ms, self._clock

    def _set(self, life: Life, identity: Identity, row: Row) -> None:
        if identity not in life.rows:
            life.bytes += _text_size(identity)
            self._count(life.app, row_size(identity) + (0 if self._uses[identity] else _metric_size(identity)))
            self._uses[identity] += 1
        life.rows[identity] = row

    def _remove(self, life: Life, identity: Identity) -> None:
        """Remove a row from a life."""
        del life.rows[identity]
        life.bytes -= _text_size(identity)
        if not life.forgotten:  # which count as the metric
            self._count(life.app, -row_size(identity))
        self._no_longer_use(identity)

    def _no_longer_use(self, identity: Identity) -> None:
        self._uses[identity] -= 1
        if not self._uses[identity]:
            self._count(identity[0], -_metric_size(identity))

    def _lives(self) -> Iterator[Life]:
        """Yield all lives, and the one of each shard for its forgotten lives."""
        yield from chain(*(lives.values() for lives in self._instances.values()), self._forgotten.values())

    def _tombstone(self, instance: str, partition: str, forget: Forget | None = None) -> None:
        """Remove the rows of an instance's lives, or of those that a forget record names."""
        lives = self._instances.get(instance, {})
        for name, life in list(lives.items()):
            if forget is not None and not (forget.app in (None, name[0]) and forget.life in (None, name[1])):
                continue
            if life.rows:
                self._event("tombstone" if forget is None else "forget", life.app, instance, name[1])
            for identity in list(life.rows):
                self._remove(life, identity)
            life.blocks.clear()
            life.final = True  # it is not living until its next snapshot that is not stale
            if life.partition == partition:  # an older snapshot that follows there is stale
                life.current_parts.update(life.seqs)
            if name == ("default", None):
                self._drop(lives.pop(name))

    def _forget_metric(self, forget: Forget, instance: str, partition: str) -> None:
        """Remove metrics from the lives that are in the shard of the record's key: those of the record's partition.

        Forgotten lives of all partitions lose them, without an event: the table does not keep the partition of a
        forgotten life.
        """
        shard = crc32(instance.encode()) % forget.shards
        removed = set[tuple[str, str]]()
        for life in self._lives():
            is_here = life.partition == partition and crc32(life.instance.encode()) % forget.shards == shard
            if life is not self._forgotten.get(shard) and not is_here:
                continue
            for identity in [one for one in life.rows if has_metric(forget, one)]:
                self._remove(life, identity)
                life.blocks.clear()
                if not life.forgotten:
                    removed.add((identity[0], identity[2]))
        for app, name in removed:
            self._event("forget", app, "", "", name)


def _out_of_bounds(snapshot: Snapshot, created_ms: int, timestamp_ms: int) -> str | None:
    """Return why a snapshot of a life of this time is too late or too early (rule 3), None if it is neither."""
    if timestamp_ms - (created_ms if snapshot.prev is None else snapshot.prev) >= LATE_MS:
        return "too late: a day or more after its prev, or its life's ULID"
    if created_ms - timestamp_ms > LATE_MS:
        return "too early: its life's ULID is more than a day ahead"
    return None


def letters(metrics: list[str], others: list[str]) -> list[str]:
    """Return the reasons of a record's dead letters: those of refused metrics, and all others."""
    for reasons in (metrics, others):
        if len(reasons) > MAX_LETTERS:
            reasons[MAX_LETTERS:] = ["more of this record is refused"]
    return metrics + others


def _text_size(identity: Identity) -> int:
    return len(identity[2].encode()) + sum(len(name.encode()) + len(value.encode()) for name, value in identity[3])


def _metric_size(identity: Identity) -> int:
    of_type = 1_600 if identity[1] == "counter" else 4_000
    return of_type + _bounds_size(identity) + 500 * len(identity[3]) + 4 * _text_size(identity)


def row_size(identity: Identity) -> int:
    """Return what a metric counts in the table for each life that has it, in bytes."""
    return (200 if identity[1] == "counter" else 600) + _bounds_size(identity)


def _bounds_size(identity: Identity) -> int:
    return 16 * int(dict(identity[3])["bounds"].split("-")[0]) if identity[1] == "buckets" else 0


def _life_size(instance: str, app: str) -> int:
    return 2_000 + 4 * (len(instance.encode()) + len(app.encode()))
