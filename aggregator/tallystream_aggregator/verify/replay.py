"""Applies the rules of docs/table.md to the records of `metrics`, with plain dicts: slow, but easy to check.

No rule depends on two instances. An instance is in one partition, or moves to another one. Then the highest seq wins,
whichever partition is read first. So the partitions may be interleaved in any way if each is read in offset order.

A life is forgotten at a clock record of its partition, or in an OTLP topic at any record of it. Its rows stay in the
sums, and only a forget record of a metric removes them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from zlib import crc32

from tallystream_aggregator.verify import decode, otlp
from tallystream_aggregator.verify.decode import Forget, Metric, RejectedError, Snapshot
from tallystream_aggregator.verify.lives import Life, Row, Settings, sum_of
from tallystream_aggregator.verify.tags import Tags

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tallystream_aggregator.verify.decode import Identity

WIDENING = (("start", min), ("min", min), ("position", max), ("max", max))
LATE_MS = 86_400_000
"""In ms. A record is refused this long after its `prev`, or more than this before the time of its ULID (rule 3)."""

LATE_START_NS = 60 * 10**9
"""A stream of OTLP may begin up to so many ns after the time of its first point. Then it began at that time."""

LifeName = tuple[str, str | None]
"""(app, life) within an instance. None stands for the short form."""

EventName = tuple[str, str, str, str, int, str]
"""(kind, app, instance, life, ts in epoch ms, detail)"""

MAX_METRIC_LETTERS = 10
"""The most dead letters of single metrics that a record makes. The other metrics share one."""


class Replay:
    """The table after the records so far. `tags` are those that the sums have, `shards` is the number of its shards.

    Each shard reads every partition, and has the instances whose key has its number. It may be ahead of others. So it
    has its own clock for each partition, as in "metrics:0": the highest append time of the records that it has read.
    """

    def __init__(self, settings: Settings | None = None, tags: Tags = Tags()) -> None:  # noqa: B008 (it is frozen)
        self._settings = settings or Settings()
        self._instances: dict[str, dict[LifeName, Life]] = {}
        self._lives_by_metric: dict[Identity, dict[Life, None]] = {}
        self._tags = tags
        self._metrics_by_sum: dict[Identity, list[Identity]] = {}
        self._metric_counts: Counter[str] = Counter()
        self._metric_bytes: Counter[str] = Counter()
        self.shards = 1
        self._clocks: dict[tuple[int, str], int] = {}  # by shard and partition, epoch ms
        self._forgetting_ms: dict[tuple[int, str], int] = {}  # the clocks before which no life is forgotten
        self._forget_after_ms = self._settings.forget_after_ms
        self.stale = 0
        self.events: list[EventName] = []
        """The events of the records so far. The caller may clear it."""

    def _event(self, kind: str, app: str, instance: str, life: str | None, detail: str = "") -> None:
        self.events.append((kind, app, instance, life or "", self._clock, detail))

    def _reached(self, life: Life, name: str | None, limit: str) -> None:
        """Note the event that a life reaches a limit, once."""
        if limit not in life.limits:
            life.limits.add(limit)
            self._event("limit", life.app, life.instance, name, limit)

    def apply(
        self,
        partition: str,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        shards: Collection[int] | None = None,
    ) -> list[str]:
        """Apply one record in these shards, None for all, which read it now.

        Return the reasons of its dead letters: of the record, or of its refused metrics.
        """
        shards = range(self.shards) if shards is None else shards
        for shard in shards:
            self._clocks[shard, partition] = max(timestamp_ms, self._clocks.get((shard, partition), 0))
        try:
            if partition.rpartition(":")[0] in self._settings.otlp_topics:
                self._forget(shards, partition)
                if self._is_otlp(value):
                    return self._apply_otlp(partition, timestamp_ms, key, value or b"", shards)
            elif key == decode.CLOCK_KEY:
                self._forget(shards, partition, self._wall_ms(value, shards))
                return []
            if (shard := self._shard(key or b"")) not in shards:
                return []
            self._clock = self._clocks[shard, partition]
            return self._apply(partition, timestamp_ms, decode.instance_of(key), value)
        except RejectedError as refused:
            return [str(refused)]

    def _wall_ms(self, value: bytes | None, shards: Collection[int]) -> int:
        """Return the wall clock in a clock record, 0 if it is refused by another shard than these."""
        try:
            return decode.clock(value)
        except RejectedError:
            if 0 in shards:
                raise
            return 0

    def _forget(self, shards: Iterable[int], partition: str, wall_ms: int | None = None) -> None:
        """Forget the lives of a partition that are due by its clock, and by `wall_ms` if it is given."""
        after_ms = self._forget_after_ms
        for shard in shards:
            at = shard, partition
            end_ms = self._clocks[at] if wall_ms is None else min(self._clocks[at], wall_ms)
            if end_ms < self._forgetting_ms.get(at, 0):
                continue
            left_ms = end_ms + after_ms
            for lives in self._instances.values():
                for name, life in list(lives.items()):
                    if life.partition != partition or life.is_short or self._shard(life.instance.encode()) != shard:
                        continue
                    if end_ms - life.keep_ms >= after_ms:
                        life.forgotten = True
                        del lives[name]
                    else:
                        left_ms = min(left_ms, life.keep_ms + after_ms)
            self._forgetting_ms[at] = left_ms

    def _shard(self, key: bytes) -> int:
        return crc32(key) % self.shards

    def _is_otlp(self, value: bytes | None) -> bool:
        if value is None:
            return False
        begin = b"".join(value[:64].split()) if value[:1] == b"{" else b""
        return not begin.startswith((b'{"forget":', b'{"v":1,"forget":'))

    def _apply_otlp(
        self, partition: str, timestamp_ms: int, key: bytes | None, value: bytes, shards: Collection[int]
    ) -> list[str]:
        """Apply a record of an OTLP topic: the data of each resource are snapshots of its instance.

        The first shard that has one of the instances refuses what has no instance.
        """
        first = self._shard(key or b"")
        try:
            resources = otlp.read(value)
        except RejectedError as error:
            return [str(error)] if first in shards else []
        instances = [otlp.instance_of(resource) for resource in resources]
        named = [self._shard(instance.encode()) for instance in instances if instance is not None]
        first = min(named, default=first)
        if len(value) > self._settings.max_record_bytes:
            if first not in shards:
                return []
            self._clock = self._clocks[first, partition]
            self._event("limit", "", "", "", "record size")
            return ["the record is too large"]
        refused: list[str] = []
        for found, resource in zip(instances, resources, strict=True):
            shard = first if found is None else self._shard(found.encode())
            if shard not in shards:
                continue
            try:
                instance, snapshots, points = otlp.snapshots(resource, timestamp_ms, self._settings.max_metrics)
            except RejectedError as error:
                refused.append(str(error))
                continue
            self._clock = self._clocks[shard, partition]
            refused += map(str, points)
            for snapshot in snapshots:
                try:
                    refused += self._snapshot(instance, partition, timestamp_ms, snapshot)
                except RejectedError as error:
                    refused.append(str(error))
        return refused

    @property
    def tags(self) -> Tags:
        """The tags that the sums have."""
        return self._tags

    @tags.setter
    def tags(self, tags: Tags) -> None:
        if tags != self._tags:
            self._tags, self._metrics_by_sum = tags, {}
            for identity in self._lives_by_metric:
                self._add_to_sum(identity)

    def identities(self) -> Iterable[Identity]:
        """Return the sum of every metric seen so far, with or without a life that has it."""
        return self._metrics_by_sum.keys()

    def rows(self, identity: Identity) -> Iterator[tuple[Life, Row]]:
        """Yield each life that has a metric of the sum, with its row, once for each such metric."""
        for metric in self._metrics_by_sum.get(identity, ()):
            for life in self._lives_by_metric[metric]:
                yield life, life.rows[metric]

    def split(self, shards: int) -> None:
        """Divide the instances among so many shards from now on. All have read the same records."""
        highest: dict[str, int] = {}
        for (_, partition), clock in self._clocks.items():
            highest[partition] = max(clock, highest.get(partition, 0))
        self._clocks = {(shard, at): clock for shard in range(shards) for at, clock in highest.items()}
        self.shards, self._forgetting_ms = shards, {}

    def forget_after(self, ms: int) -> None:
        """Forget lives after this time from now on."""
        if ms != self._forget_after_ms:
            self._forget_after_ms, self._forgetting_ms = ms, {}

    def sum(self, identity: Identity) -> dict[str, Any]:
        """Return the fields of one sum. `retired` is the number of its lives that were forgotten."""
        return sum_of(identity[1], [(life, row, self._living(life)) for life, row in self.rows(identity)])

    def _living(self, life: Life) -> bool:
        clock = self._clocks[self._shard(life.instance.encode()), life.partition]
        return not life.final and not life.forgotten and clock < life.deadline_ms

    def _apply(self, partition: str, timestamp_ms: int, instance: str, value: bytes | None) -> list[str]:
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
        if isinstance(message, Metric):
            return self._short_form(instance, partition, message)
        return self._snapshot(instance, partition, timestamp_ms, message)

    def _snapshot(self, instance: str, partition: str, timestamp_ms: int, snapshot: Snapshot) -> list[str]:
        created = decode.created_ms(snapshot.life)
        if timestamp_ms - (created if snapshot.prev is None else snapshot.prev) >= LATE_MS:
            raise RejectedError("too late: a day or more after its prev, or its life's ULID")
        if created - timestamp_ms > LATE_MS:
            raise RejectedError("too early: its life's ULID is more than a day ahead")
        known = self._instances.get(instance, {}).get((snapshot.app, snapshot.life))
        if known is not None and known.complete != snapshot.complete:
            raise RejectedError("complete differs from that of the life's earlier snapshots")
        if known is None and self._is_restart(instance, snapshot, created):
            self._event("restart", snapshot.app, instance, snapshot.life)
        life = self._life(instance, (snapshot.app, snapshot.life), partition, snapshot.every_ms)
        life.keep_ms, life.complete, life.created_ms = max(life.keep_ms, created), snapshot.complete, created
        if snapshot.seq <= life.seqs.get(snapshot.part, 0):
            self.stale += 1
            if not life.complete or life.partition != partition or snapshot.part not in life.current_parts:
                self._add_older(life, snapshot)
            return []
        if life.partition != partition:
            life.current_parts.clear()
        life.current_parts.add(snapshot.part)
        life.seqs[snapshot.part] = snapshot.seq
        self._mark_active(life, partition, snapshot.every_ms)
        life.final = snapshot.final
        if snapshot.over_limit:
            self._reached(life, snapshot.life, "metrics per record")
        refused = self._replace_all(life, snapshot)
        return [*refused, "too many metrics per record"] if snapshot.over_limit else refused

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

    def _add_older(self, life: Life, snapshot: Snapshot) -> None:
        """Add the metrics of a stale snapshot that is not complete, or whose life moved.

        Of each metric, the highest count and then the highest seq counts. Every value widens min, max and positions. A
        metric that would be refused in a snapshot in order is skipped without a dead letter.
        """
        seen: set[Identity] = set()
        for metric in snapshot.metrics:
            if isinstance(metric, RejectedError) or metric.identity in seen:
                continue
            seen.add(metric.identity)
            before = life.rows.get(metric.identity)
            if before is None:
                if self._limit(life, metric.identity) is None:
                    self._replace(life, metric, snapshot, None)
            elif before.part != snapshot.part:
                continue
            elif (_count(metric.numbers), snapshot.seq) > (_count(before.numbers), before.seq):
                self._replace(life, metric, snapshot, before)
            else:
                before.numbers = _widened(before.numbers, metric.numbers)

    def _replace(self, life: Life, metric: Metric, snapshot: Snapshot, before: Row | None) -> None:
        numbers = metric.numbers if before is None else _widened(metric.numbers, before.numbers)
        self._set(life, metric.identity, Row(numbers, metric.bins, snapshot.part, snapshot.seq))

    def _replace_all(self, life: Life, snapshot: Snapshot) -> list[str]:
        refused: list[str] = []
        seen: set[Identity] = set()
        exceeded: set[str] = set()
        for metric in snapshot.metrics:
            if isinstance(metric, RejectedError):
                refused.append(str(metric))
                continue
            before = life.rows.get(metric.identity)
            if metric.identity in seen:
                refused.append("the snapshot has this metric twice")
            elif before is None and (limit := self._limit(life, metric.identity)):
                exceeded.add(limit)
            elif before is not None and before.part != snapshot.part:
                refused.append("the metric was in another part of this life")
            elif before is not None and _count(metric.numbers) < _count(before.numbers):
                refused.append("the count falls")
                before.numbers = _widened(before.numbers, metric.numbers)
            else:
                self._replace(life, metric, snapshot, before)
            seen.add(metric.identity)
        if len(refused) > MAX_METRIC_LETTERS:
            refused[MAX_METRIC_LETTERS:] = ["more metrics of this record are refused"]
        for limit in exceeded:
            self._reached(life, snapshot.life, limit)
            refused.append(f"too many {limit}")
        return refused

    def _short_form(self, instance: str, partition: str, metric: Metric) -> list[str]:
        life = self._life(instance, ("default", None), partition, self._settings.short_form_every_ms)
        self._mark_active(life, partition, self._settings.short_form_every_ms)
        before, last = life.rows.get(metric.identity), metric.numbers["count"]
        if before is None and (limit := self._limit(life, metric.identity)):
            self._reached(life, None, limit)
            raise RejectedError(f"too many {limit}")
        earlier = 0
        if before is not None:
            earlier = before.numbers["earlier"] + (before.numbers["last"] if last < before.numbers["last"] else 0)
        if earlier + last > decode.MAX_INT64:
            raise RejectedError("the sum over its restarts leaves 64 bits")
        if before is not None and last < before.numbers["last"]:
            self._event("restart", life.app, instance, None, metric.identity[2])
        self._set(life, metric.identity, Row({"count": earlier + last, "earlier": earlier, "last": last}, None, 0, 0))
        return []

    def _limit(self, life: Life, identity: Identity) -> str | None:
        """Return the limit that a new row would exceed (rule 11), None if it would exceed none."""
        if len(life.rows) >= self._settings.max_metrics:
            return "metrics per life"
        if identity in self._lives_by_metric:
            return None
        for whose, most in ((life.app, self._settings.max_app_metrics), ("", 4 * self._settings.max_app_metrics)):
            if self._metric_counts[whose] >= most:
                return f"metrics per {'app' if whose else 'table'}"
            if self._metric_bytes[whose] + _size(identity) > 256 * most:
                return f"bytes of metrics per {'app' if whose else 'table'}"
        return None

    def _life(self, instance: str, name: LifeName, partition: str, every_ms: int) -> Life:
        """Return a life, a new one if there is none, and note the time of this record."""
        lives = self._instances.setdefault(instance, {})
        life = lives.get(name)
        if life is None:
            life = Life(name[0], instance, partition, every_ms, self._clock, self._clock, is_short=name[1] is None)
            lives[name] = life
        life.keep_ms = max(self._clock, life.keep_ms)
        return life

    def _mark_active(self, life: Life, partition: str, every_ms: int) -> None:
        life.partition, life.every_ms, life.active_ms = partition, every_ms, self._clock

    def _set(self, life: Life, identity: Identity, row: Row) -> None:
        life.rows[identity] = row
        if identity not in self._lives_by_metric:
            for whose in (life.app, ""):
                self._metric_counts[whose] += 1
                self._metric_bytes[whose] += _size(identity)
            self._add_to_sum(identity)
        self._lives_by_metric.setdefault(identity, {})[life] = None

    def _add_to_sum(self, identity: Identity) -> None:
        self._metrics_by_sum.setdefault(self._tags.sum_of(identity), []).append(identity)

    def _tombstone(self, instance: str, partition: str, forget: Forget | None = None) -> None:
        """Remove the rows of an instance's lives, or of those that a forget record names."""
        lives = self._instances.get(instance, {})
        for name, life in list(lives.items()):
            if forget is not None and not forget.has_life(*name):
                continue
            if life.rows:
                self._event("tombstone" if forget is None else "forget", life.app, instance, name[1])
            rows, life.rows = life.rows, {}
            life.final = True  # it is not living until its next snapshot that is not stale
            if life.partition == partition:  # an older snapshot that follows there is stale
                life.current_parts.update(life.seqs)
            for identity in rows:
                del self._lives_by_metric[identity][life]
            if name == ("default", None):
                del lives[name]

    def _forget_metric(self, forget: Forget, instance: str, partition: str) -> None:
        """Remove metrics from the lives that are in the shard of the record's key: those of the record's partition.

        Forgotten lives of all partitions lose them: the table does not keep the partition of a forgotten life.
        """
        shard = crc32(instance.encode()) % forget.shards
        forgotten = set[tuple[str, str]]()
        for identity in filter(forget.has_metric, self._lives_by_metric):
            for life in list(self._lives_by_metric[identity]):
                if crc32(life.instance.encode()) % forget.shards == shard and (
                    life.forgotten or life.partition == partition
                ):
                    del life.rows[identity]
                    del self._lives_by_metric[identity][life]
                    forgotten.add((life.app, identity[2]))
        for app, name in forgotten:
            self._event("forget", app, "", "", name)


def _count(numbers: dict[str, Any]) -> Any:
    """Return what must not fall within a life: the count, the sum of a float counter, 0 for other types."""
    return numbers["count"] if "count" in numbers else numbers.get("sum", 0)


def _widened(numbers: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a row. The others only widen the range of positions, min and max."""
    kept = dict(numbers)
    for name, choose in WIDENING:
        other = others.get(name)
        if other is not None:
            kept[name] = other if kept.get(name) is None else choose(kept[name], other)
    return kept


def _size(identity: Identity) -> int:
    return len(identity[2].encode()) + sum(len(name.encode()) + len(value.encode()) for name, value in identity[3])
