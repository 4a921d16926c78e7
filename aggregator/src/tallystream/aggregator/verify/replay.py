"""The rules of docs/table.md over the records of `metrics`: plain dicts, slow, meant to be obviously right.

An instance is in one partition, and no rule looks at two instances: so partitions may be fed in any interleaving, as
long as each is in offset order. Only `sum` looks at all of them: call `settle`, then `sum`, where a batch of the
aggregator ended.
"""

from __future__ import annotations

import heapq
from itertools import count as counting
from typing import TYPE_CHECKING, Any

from tallystream.aggregator.verify import reading
from tallystream.aggregator.verify.lives import Life, Row, Settings
from tallystream.aggregator.verify.reading import Metric, RefusedError, Snapshot
from tallystream.aggregator.verify.summing import STAYING, Total, sum_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.verify.reading import Identity

Name = tuple[str, str | None]
"""(app, life) within an instance; no life for the short form."""


class Replay:
    """The table, as these records make it. `clocks`: partition, as in "metrics:0" → highest append time, epoch ms."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._instances: dict[str, dict[Name, Life]] = {}
        self._holders: dict[Identity, dict[Life, None]] = {}
        self._bases: dict[Identity, Total] = {}
        self._ends: dict[str, list[tuple[int, int, Life, Name]]] = {}
        self._order = counting()
        self.clocks: dict[str, int] = {}
        self.stale = 0

    def apply(self, partition: str, timestamp_ms: int, key: bytes | None, value: bytes | None) -> list[str]:
        """Take one record; return why it, or each of its metrics that was refused, is a dead letter."""
        self.clocks[partition] = max(timestamp_ms, self.clocks.get(partition, 0))
        try:
            return self._take(partition, reading.instance_of(key), value)
        except RefusedError as refused:
            return [str(refused)]

    def identities(self) -> Iterable[Identity]:
        """Return every metric that there was, whether or not anybody still has it."""
        return self._holders.keys()

    def settle(self) -> None:
        """Fold every life that has retired, as the table does at the end of a batch."""
        for partition, ends in self._ends.items():
            clock = self.clocks[partition]
            while ends and ends[0][0] <= clock:
                _, order, life, name = heapq.heappop(ends)
                at = life.retires_at(self._settings.retire_after_ms)
                if at is None or self._instances.get(life.instance, {}).get(name) is not life:
                    continue
                if at > clock or life.partition != partition:
                    heapq.heappush(self._ends[life.partition], (at, order, life, name))
                else:
                    self._fold(life, name)

    def sum(self, identity: Identity, at_ms: int = 0) -> dict[str, Any]:
        """Return the fields of one sum, by the clocks of the records, or at a moment that is later.

        Raises:
            UnpublishedError: a number of it does not fit into 64 bits.
        """
        held = (
            (life, life.rows[identity], life.living(max(at_ms, self.clocks[life.partition])))
            for life in self._holders.get(identity, ())
        )
        return sum_of(identity[1], self._bases.get(identity), held)

    def _take(self, partition: str, instance: str, value: bytes | None) -> list[str]:
        self._fold_instance(instance, self.clocks[partition])
        if value is None:
            self._tombstone(instance)
            return []
        if len(value) > self._settings.max_record_bytes:
            raise RefusedError("the record is too large")
        said = reading.read(value, self._settings.max_metrics)
        if isinstance(said, Metric):
            return self._short_form(instance, partition, said)
        return self._snapshot(instance, partition, said)

    def _snapshot(self, instance: str, partition: str, said: Snapshot) -> list[str]:
        clock, retire_after = self.clocks[partition], self._settings.retire_after_ms
        born = reading.born_ms(said.life)
        if clock - (born if said.prev is None else said.prev) >= retire_after:
            raise RefusedError("too late: the life it belongs to may have retired")
        if born - clock > retire_after:
            raise RefusedError("too early: its life's ULID is too far ahead")
        life = self._life(instance, (said.app, said.life), partition, said.every_ms)
        if life.ahead_ms is None:
            life.ahead_ms = born
            heapq.heappush(self._ends.setdefault(partition, []), (0, next(self._order), life, (said.app, said.life)))
        if said.seq <= life.seqs.get(said.part, 0):
            self.stale += 1
            return []
        life.seqs[said.part] = said.seq
        life.spoke_ms, life.every_ms, life.final = clock, said.every_ms, said.final
        refused = self._replace_all(life, said)
        return [*refused, "too many metrics in a record"] if said.beyond else refused

    def _replace_all(self, life: Life, said: Snapshot) -> list[str]:
        refused: list[str] = []
        seen: set[Identity] = set()
        beyond = False
        for metric in said.metrics:
            if isinstance(metric, RefusedError):
                refused.append(str(metric))
                continue
            before = life.rows.get(metric.identity)
            if metric.identity in seen:
                refused.append("the snapshot has this metric twice")
            elif before is None and len(life.rows) >= self._settings.max_metrics:
                beyond = True
            elif before is not None and before.part != said.part:
                refused.append("the metric was in another part of this life")
            elif before is not None and metric.numbers.get("count", 0) < before.numbers.get("count", 0):
                refused.append("the count falls")
            else:
                self._set(life, metric.identity, Row(_kept(metric.numbers, before), metric.bins, said.part, said.seq))
            seen.add(metric.identity)
        return [*refused, "too many metrics in a life"] if beyond else refused

    def _short_form(self, instance: str, partition: str, metric: Metric) -> list[str]:
        life = self._life(instance, ("default", None), partition, self._settings.short_form_every_ms)
        life.spoke_ms = self.clocks[partition]
        before, last = life.rows.get(metric.identity), metric.numbers["count"]
        if before is None and len(life.rows) >= self._settings.max_metrics:
            raise RefusedError("too many metrics in a life")
        folded = 0
        if before is not None:
            folded = before.numbers["folded"] + (before.numbers["last"] if last < before.numbers["last"] else 0)
        if folded + last > reading.BIGGEST:
            raise RefusedError("the sum over its restarts leaves 64 bits")
        self._set(life, metric.identity, Row({"count": folded + last, "folded": folded, "last": last}, None, 0, 0))
        return []

    def _life(self, instance: str, name: Name, partition: str, every_ms: int) -> Life:
        """Return a life, a new one where there is none; it was heard of now."""
        clock = self.clocks[partition]
        life = self._instances.setdefault(instance, {}).setdefault(
            name, Life(name[0], instance, partition, every_ms, clock, clock, None)
        )
        life.partition, life.heard_ms = partition, clock
        return life

    def _set(self, life: Life, identity: Identity, row: Row) -> None:
        life.rows[identity] = row
        self._holders.setdefault(identity, {})[life] = None

    def _tombstone(self, instance: str) -> None:
        for life in self._instances.get(instance, {}).values():
            for identity in life.rows:
                del self._holders[identity][life]
            life.rows.clear()
        self._instances.get(instance, {}).pop(("default", None), None)

    def _fold_instance(self, instance: str, clock: int) -> None:
        for name, life in list(self._instances.get(instance, {}).items()):
            at = life.retires_at(self._settings.retire_after_ms)
            if at is not None and at <= clock:
                self._fold(life, name)

    def _fold(self, life: Life, name: Name) -> None:
        for identity, row in life.rows.items():
            if identity[1] in STAYING:
                base = self._bases.setdefault(identity, Total())
                base.add(row)
                base.retired += 1
            del self._holders[identity][life]
        del self._instances[life.instance][name]
        if not self._instances[life.instance]:
            del self._instances[life.instance]


def _kept(numbers: dict[str, Any], before: Row | None) -> dict[str, Any]:
    """Return what replaces a row's numbers: the new ones, but of positions the lowest start and the highest end."""
    if before is None or "position" not in numbers:
        return numbers
    return {name: choose(numbers[name], before.numbers[name]) for name, choose in (("start", min), ("position", max))}
