"""The rules of docs/table.md for the records of a shard, with plain dicts: easy to check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.record import Counter, ShortForm
from tallystream.ulid import ulid_ms
from tallystream_aggregator.verify import decode
from tallystream_aggregator.verify.decode import Forget, RejectedError, has_metric, identify
from tallystream_aggregator.verify.lives import MAX_INT64, Block, Life, Row, main_count, require_valid, widen
from tallystream_aggregator.verify.shard import PART_BYTES, Shard

if TYPE_CHECKING:
    from tallystream.record import Snapshot
    from tallystream_aggregator.verify.decode import Identity, Read

LATE_MS = 86_400_000
"""In ms. A record is refused this long after its `prev`, or more than this before the time of its ULID (rule 3)."""

LATE_START_NS = 60 * 10**9
"""A stream of OTLP may begin up to so many ns after the time of its first point. Then it began at that time."""

MAX_LETTERS = 10
"""The most dead letters of single metrics that a record makes, and of other parts of it. The others share one."""


class Rules(Shard):
    """A shard, and what the records of its instances change."""

    def apply(self, partition: str, timestamp_ms: int, instance: str, value: bytes | None) -> list[str]:
        """Apply a record of an instance, and return the reasons of its dead letters.

        Raises:
            RejectedError: the whole record is refused.
        """
        self.note_partition(instance, partition)
        if value is None:
            self._tombstone(instance, partition)
            return []
        if len(value) > self.settings.max_record_bytes:
            self.event("limit", "", instance, "", "record size")
            raise RejectedError("the record is too large")
        message = decode.read(value, self.settings.max_metrics)
        if isinstance(message, Forget):
            if message.metric is None:
                self._tombstone(instance, partition, message)
            elif message.shards != self.of:
                raise RejectedError("forget: for another number of shards than the table has")
            else:
                self._forget_metric(message, partition)
            return []
        if isinstance(message, ShortForm):
            return self._short_form(instance, partition, message)
        if self._replace(partition, timestamp_ms, instance, message):
            return []
        return letters(*self.apply_snapshot(instance, partition, timestamp_ms, message))

    def _replace(self, partition: str, timestamp_ms: int, instance: str, message: Read) -> bool:
        """Apply a snapshot that only replaces the values of the one before. Return False if it does anything else."""
        snapshot = message.snapshot
        if message.refused or message.over_limit:
            return False
        life = self.instances.get(instance, {}).get((snapshot.app, snapshot.life))
        block = None if life is None or life.partition != partition else life.blocks.get(snapshot.part)
        if life is None or block is None or _out_of_bounds(snapshot, life.created_ms, timestamp_ms) is not None:
            return False
        is_newer = snapshot.complete and snapshot.seq > life.seqs[snapshot.part]
        if not is_newer or not block.replace(snapshot):
            return False
        life.keep_ms = max(self.clock, life.keep_ms)
        self._make_newest(life, partition, snapshot)
        return True

    def _make_newest(self, life: Life, partition: str, snapshot: Snapshot) -> None:
        if life.partition != partition:
            life.current_parts.clear()
        life.current_parts.add(snapshot.part)
        life.seqs[snapshot.part], life.final = snapshot.seq, snapshot.final
        self._mark_active(life, partition, snapshot.every_ms)

    def apply_snapshot(
        self, instance: str, partition: str, timestamp_ms: int, message: Read
    ) -> tuple[list[str], list[str]]:
        """Apply a snapshot. Return why metrics are refused, and other reasons of dead letters."""
        snapshot = message.snapshot
        created = ulid_ms(snapshot.life)
        reason = _out_of_bounds(snapshot, created, timestamp_ms)
        if reason is not None:
            raise RejectedError(reason)
        life = self._life_of(instance, partition, snapshot, created)
        if snapshot.seq <= life.seqs.get(snapshot.part, 0):
            self.noted.stale += 1
            if not life.complete or life.partition != partition or snapshot.part not in life.current_parts:
                self._add(life, message)  # what would be refused has no dead letter
            return [], []
        self._make_newest(life, partition, snapshot)
        refused, limits = self._add(life, message)
        exceeded = [*limits, *["metrics per record"] * message.over_limit]
        for limit in exceeded:
            self.reached(life, snapshot.life, limit)
        return refused, [f"too many {limit}" for limit in exceeded]

    def _life_of(self, instance: str, partition: str, snapshot: Snapshot, created_ms: int) -> Life:
        """Return the life of a snapshot, which may be new."""
        name = snapshot.app, snapshot.life
        known = self.instances.get(instance, {}).get(name)
        if known is not None and known.complete != snapshot.complete:
            raise RejectedError("complete differs from that of the life's earlier snapshots")
        is_restart = known is None and self._is_restart(instance, snapshot, created_ms)
        life = self.life(instance, name, partition, snapshot.every_ms)
        if is_restart and (life.app, instance) not in self.restarted:
            self.restarted.add((life.app, instance))
            self.event("restart", life.app, instance, snapshot.life)
        life.keep_ms, life.complete, life.created_ms = max(life.keep_ms, created_ms), snapshot.complete, created_ms
        if snapshot.part not in life.seqs:
            if limit := self.room.exceeded(life.app, PART_BYTES):
                self.reached(life, snapshot.life, limit)
                raise RejectedError(f"no room for a part: {limit}")
            self.room.add(life.app, PART_BYTES)
        return life

    def _is_restart(self, instance: str, snapshot: Snapshot, created_ms: int) -> bool:
        """Return whether a new life is a restart of its instance (rule 2; docs/otlp.md, "Restart events")."""
        lives = self.instances.get(instance, {}).values()
        others = [life for life in lives if life.app == snapshot.app and not life.is_short]
        if snapshot.complete:
            return bool(others)
        begin_ns = created_ms * 10**6
        if 0 < begin_ns - snapshot.seq < LATE_START_NS:
            begin_ns = snapshot.seq
        others = [life for life in others if life.complete or life.created_ms]
        streams = [life for life in others if not life.complete]
        newest_ns = max((max((life.created_ms * 10**6, *life.seqs.values())) for life in streams), default=0)
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
            elif before is None and (limit := self.limit(life, identity)):
                limits.add(limit)
            elif before is not None and before.part != snapshot.part:
                refused.append("the metric was in another part of this life")
            elif before is not None and (main_count(values), snapshot.seq) <= (main_count(before.values), before.seq):
                refused.append("the count falls")
                widen(before.values, values)
            else:
                if before is not None:
                    widen(values, before.values)
                self.set_row(life, identity, Row(values, snapshot.part, snapshot.seq))
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
                    self.room.hold(identity)

    def _short_form(self, instance: str, partition: str, message: ShortForm) -> list[str]:
        life = self.life(instance, ("default", None), partition, self.settings.short_form_every_ms)
        self._mark_active(life, partition, self.settings.short_form_every_ms)
        values = Counter(name=message.name, tags=message.tags, count=message.value)
        identity, last = identify("default", values), message.value
        before = life.rows.get(identity)
        if before is None and (limit := self.limit(life, identity)):
            self.reached(life, None, limit)
            raise RejectedError(f"too many {limit}")
        if before is not None:
            values.count += before.values.count - (before.last if last >= before.last else 0)
        if values.count > MAX_INT64:
            raise RejectedError("the sum over its restarts leaves 64 bits")
        if before is not None and last < before.last:
            self.event("restart", life.app, instance, None, message.name)
        self.set_row(life, identity, Row(values, last=last))
        return []

    def _mark_active(self, life: Life, partition: str, every_ms: int) -> None:
        life.partition, life.every_ms, life.active_ms = partition, every_ms, self.clock

    def _tombstone(self, instance: str, partition: str, forget: Forget | None = None) -> None:
        """Remove the rows of an instance's lives, or of those that a forget record names."""
        lives = self.instances.get(instance, {})
        for name, life in list(lives.items()):
            if forget is not None and not (forget.app in (None, name[0]) and forget.life in (None, name[1])):
                continue
            if life.rows:
                self.event("tombstone" if forget is None else "forget", life.app, instance, name[1])
            for identity in list(life.rows):
                self.remove_row(life, identity)
            life.blocks.clear()
            life.final = True  # it is not living until its next snapshot that is not stale
            if life.partition == partition:  # an older snapshot that follows there is stale
                life.current_parts.update(life.seqs)
            if name == ("default", None):
                self.drop(lives.pop(name))

    def _forget_metric(self, forget: Forget, partition: str) -> None:
        """Remove metrics from the lives of the record's partition.

        Forgotten lives of all partitions lose them, without an event: the table does not keep the partition of a
        forgotten life.
        """
        removed = set[tuple[str, str]]()
        for life in self.lives():
            if life.partition != partition and not life.forgotten:
                continue
            for identity in [one for one in life.rows if has_metric(forget, one)]:
                self.remove_row(life, identity)
                life.blocks.clear()
                if not life.forgotten:
                    removed.add((identity[0], identity[2]))
        for app, name in removed:
            self.event("forget", app, "", "", name)


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
