"""Judges what a simulated system publishes by the replay of verify, transaction by transaction.

It shares no code with the loop, only the formats of the topics. The positions row of a transaction names positions.
After it, the sums on `metrics-agg`, the dead letters and the events must be those of the records up to these positions.
If it has rows, they must restore a table with these sums. No position may go back, and no count may fall. The sums of
several shards are compared when all shards are at the same positions, and their dead letters and events at the end.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from support.replayed import Key, Replayed, fields_of, replay
from support.schedules import may_lower_counts
from support.simulation.broker import Transaction
from support.simulation.partition import Entry, Outcome
from support.simulation.system import System, by_place
from support.tables import sums_of
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.table.restore import LatestRows, restore

LETTERS = {"metrics-dead", "metrics-events"}


class Violation(AssertionError):  # noqa: N818 (it is the name of what it is)
    """A property of the loop does not hold."""


class Judge:
    """Judges a system. One of `every` transactions is compared in full, and of a single shard each one with rows."""

    def __init__(self, system: System, every: int = 1) -> None:
        self._system, self._every = system, every
        self._judged: set[int] = set()
        self._sums: dict[Key, dict[str, Any]] = {}
        self._dead: Counter[tuple[int, int]] = Counter()
        self._events: Counter[Any] = Counter()
        self._rows: list[tuple[bytes, bytes | None]] = []
        self._positions: dict[tuple[int, int, int], dict[Place, int]] = {}
        self.compared = self.cuts = 0

    def judge(self) -> None:
        """Judge the transactions that were committed since the last call.

        Raises:
            Violation: a property does not hold.
        """
        hanging = set[str]()
        for transaction in self._system.cluster.transactions:
            if transaction.number in self._judged or transaction.outcome != "commit" or transaction.unmarked:
                continue
            outcome = self._outcome(transaction)
            if outcome is None:
                hanging.add(transaction.transactional_id)
            if transaction.transactional_id in hanging:
                continue  # a reader does not see what follows, either
            self._judged.add(transaction.number)
            if outcome == "abort":
                continue
            self._judge(transaction.written)

    def end(self) -> None:
        """Judge the rest, and the whole result."""
        self.judge()
        (positions,) = {str(sorted(one.items())): one for one in self._system.published().values()}.values()
        self._compare(positions)
        self._compare_letters(positions)

    def _outcome(self, transaction: Transaction) -> Outcome | None:
        """Return how a transaction ended that Kafka has committed, though markers were lost; None if it hangs.

        Dead letters and events of a committed one may hang for longer, until the next one.
        """
        outcomes = {
            place: self._system.cluster.partition(place).outcomes.get(transaction.number)
            for place in transaction.places
        }
        found = {o for place, o in outcomes.items() if o or place.topic not in LETTERS}
        if len(found) > 1 and None not in found:
            raise Violation(f"a part of a transaction is committed: {outcomes}")
        return found.pop() if len(found) == 1 else None

    def _judge(self, records: list[tuple[Place, Entry]]) -> None:
        rows = [row for place, entry in records if (row := self._take(place, entry)) is not None]
        if not rows:
            raise Violation("a transaction without positions")
        for row in rows:
            of_shards = row.get("shards") or {str(row["shard"]): row["positions"]}
            for one, positions in of_shards.items():
                self._move(row["of"], row["shard"], int(one), by_place(positions))
        shard, of = rows[-1]["shard"], rows[-1]["of"]
        is_cut = of == 1 and any(entry.key == b'["shard",0]' for _, entry in records)
        if (len(self._judged) % self._every and not is_cut) or shard != of - (of == 1):
            return
        vector = [self._positions.get((of, shard, one), {}) for one in range(of)]
        if any(positions != vector[0] for positions in vector):
            return
        self._compare(vector[0])
        if of == 1:
            self._compare_letters(vector[0])
            if is_cut:
                self._compare_rows(vector[0])

    def _take(self, place: Place, entry: Entry) -> dict[str, Any] | None:
        """Take one record, and return it if it is a positions row."""
        if (entry.key or b"").startswith(b'["positions",'):
            row: dict[str, Any] = json.loads(entry.value or b"")
            return row
        if entry.value is None and place.topic in LETTERS:
            return None  # it ends a transaction whose markers were lost
        if place.topic == "metrics-agg":
            self._sum(entry)
        elif place.topic == "metrics-dead":
            letter = json.loads(entry.value or b"")
            self._dead[letter["partition"], letter["offset"]] += 1
        elif place.topic == "metrics-events":
            self._event(json.loads(entry.value or b""))
        elif place.topic == "metrics-table":
            self._rows.append((entry.key or b"", entry.value))
        return None

    def _move(self, of: int, writer: int, shard: int, positions: dict[Place, int]) -> None:
        before = self._positions.get((of, writer, shard), {})
        if any(positions.get(place, -1) < at for place, at in before.items()):
            raise Violation(f"positions of shard {shard} went back: from {before} to {positions}")
        self._positions[of, writer, shard] = positions

    def _sum(self, entry: Entry) -> None:
        app, kind, name, tags = json.loads(entry.key or b"")
        key, fields = (app, name, kind, tuple(map(tuple, tags))), fields_of(entry.value or b"")
        known = self._sums.get(key)
        if known is not None and not any(map(may_lower_counts, self._system.records)):
            for name in ("count", "position"):
                old, new = known.get(name, 0), fields.get(name, 0)
                if new < old:
                    raise Violation(f"{key}: {name} fell from {old} to {new}")
        self._sums[key] = fields

    def _event(self, event: dict[str, Any]) -> None:
        if event["kind"] != "overflow":
            names = ("kind", "app", "instance", "life", "ts")
            self._events[(*(event[name] for name in names), event.get("detail", ""))] += 1

    def _wanted(self, positions: dict[Place, int]) -> Replayed:
        """Return what verify makes of the records up to these positions, one partition after the other."""
        at = {place.partition: position for place, position in positions.items()}
        mine = [record for record in self._system.records if record.offset < at.get(record.partition, 0)]
        return replay(sorted(mine, key=lambda record: (record.partition, record.offset)), **self._system.rules)

    def _compare(self, positions: dict[Place, int]) -> None:
        self.compared += 1
        wanted = self._wanted(positions)
        # A change of the shards may come before the sum of a metric that no life has any more.
        keys = [key for key, fields in wanted.sums.items() if key in self._sums or any(fields.values())]
        if wanted.differing(self._sums, keys):
            raise Violation(f"sums at {positions}: {wanted.differing(self._sums, keys)}")

    def _compare_letters(self, positions: dict[Place, int]) -> None:
        wanted = self._wanted(positions)
        if self._dead != wanted.dead:
            raise Violation(f"dead letters at {positions}: {self._dead}, not {wanted.dead}")
        if self._events != wanted.events:
            raise Violation(f"events at {positions}: {self._events}, not {wanted.events}")

    def _compare_rows(self, positions: dict[Place, int]) -> None:
        self.cuts += 1
        latest = LatestRows()
        for key, value in self._rows:
            latest.add(key, value)
        found = sums_of(restore(latest).states)
        differing = self._wanted(positions).differing(found, found)
        if differing:
            raise Violation(f"rows at {positions}: {differing}")
