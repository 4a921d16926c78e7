"""Judges what a simulated system publishes by the oracle, transaction by transaction.

It shares no code with the loop, only the formats of the topics. The positions row of a transaction names positions.
After it, the sums on `metrics-agg`, the dead letters and the events must be those of the records up to these positions.
If it has rows, they must restore a table with these sums. No position may go back, and no count may fall.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from support import oracle
from support.schedules import may_lower_counts
from support.simulation.system import positions_in
from tallystream_aggregator import sums
from tallystream_aggregator.table import Table
from tallystream_aggregator.table.restore.latest_rows import LatestRows
from tallystream_aggregator.table.restore.restore import restore

if TYPE_CHECKING:
    from support.schedules import TopicRecord
    from support.simulation.partition import Entry
    from support.simulation.system import System
    from tallystream_aggregator.stream.broker import Place

POSITIONS_KEY = b'["positions",0]'
SHARD_KEY = b'["shard",0]'


class Violation(AssertionError):  # noqa: N818 (it is the name of what it is)
    """A property of the loop does not hold."""


class Judge:
    """Judges a system. `every` is how many transactions are passed over between two that are compared in full."""

    def __init__(self, system: System, rules: dict[str, Any], every: int = 1) -> None:
        self._system, self._rules, self._every = system, rules, every
        self._judged = 0
        self._sums: dict[Any, sums.Sum] = {}
        self._dead: Counter[tuple[int, int]] = Counter()
        self._events: Counter[Any] = Counter()
        self._rows: list[tuple[bytes, bytes | None]] = []
        self._positions: dict[Place, int] = {}
        self.compared = self.cuts = 0

    def judge(self) -> None:
        """Judge the transactions that were committed since the last call.

        Raises:
            Violation: a property does not hold.
        """
        done = [t for t in self._system.cluster.transactions if t.outcome == "commit" and not t.unmarked]
        for transaction in done[self._judged :]:
            self._judged += 1
            self._judge(
                [
                    (place, entry)
                    for place in transaction.places
                    for entry in self._system.cluster.written.get((transaction.number, place), ())
                ]
            )

    def end(self) -> None:
        """Judge the rest, and the whole result."""
        self.judge()
        self._compare()

    def _judge(self, records: list[tuple[Place, Entry]]) -> None:
        positions, has_rows = None, False
        before = self._positions
        for place, entry in records:
            if place.topic == "metrics-agg":
                self._sum(entry)
            elif place.topic == "metrics-dead":
                letter = json.loads(entry.value or b"")
                self._dead[letter["partition"], letter["offset"]] += 1
            elif place.topic == "metrics-events":
                self._event(json.loads(entry.value or b""))
            elif entry.key == POSITIONS_KEY:
                positions = positions_in(entry.value or b"")
            else:
                has_rows |= entry.key == SHARD_KEY
                self._rows.append((entry.key or b"", entry.value))
        if positions is None:
            raise Violation("a transaction without positions")
        if any(positions.get(place, -1) < at for place, at in before.items()):
            raise Violation(f"positions went back: from {before} to {positions}")
        self._positions = positions
        if self._judged % self._every == 0:
            self._compare()
            if has_rows:
                self._compare_rows()

    def _sum(self, entry: Entry) -> None:
        row = sums.decode(entry.value or b"")
        key = row.app, row.name, row.type, tuple(sorted(row.tags.items()))
        known = self._sums.get(key)
        if known is not None and not any(map(may_lower_counts, self._system.records)):
            for name in ("count", "position"):
                old, new = getattr(known, name), getattr(row, name)
                if old is not None and new < old:
                    raise Violation(f"{key}: {name} fell from {old} to {new}")
        self._sums[key] = row

    def _event(self, event: dict[str, Any]) -> None:
        if event["kind"] != "overflow":
            names = ("kind", "app", "instance", "life", "ts")
            self._events[(*(event[name] for name in names), event.get("detail", ""))] += 1

    def _records(self) -> list[TopicRecord]:
        """Return the records up to the published positions, one partition after the other."""
        at = {place.partition: position for place, position in self._positions.items()}
        mine = [record for record in self._system.records if record.offset < at.get(record.partition, 0)]
        return sorted(mine, key=lambda record: (record.partition, record.offset))

    def _compare(self) -> None:
        self.compared += 1
        wanted = oracle.replay(self._records(), **self._rules)
        for key, fields in wanted.sums.items():
            row = self._sums.get(key)
            if row is None:
                raise Violation(f"{key}: it has no sum at {self._positions}")
            found = {name: getattr(row, name) for name in fields}
            if found != fields:
                raise Violation(f"{key}: {found} at {self._positions}, not {fields}")
        if self._dead != wanted.dead:
            raise Violation(f"dead letters at {self._positions}: {self._dead}, not {wanted.dead}")
        if self._events != wanted.events:
            raise Violation(f"events at {self._positions}: {self._events}, not {wanted.events}")

    def _compare_rows(self) -> None:
        self.cuts += 1
        latest = LatestRows()
        for key, value in self._rows:
            latest.add(key, value)
        state = restore(latest).states[0]
        table = Table(state)
        table.notice_silence()
        wanted = oracle.replay(self._records(), **self._rules).sums
        for total in table.changes().totals:
            fields = wanted[total.metric]
            for name, number in total.totals.items():
                if name in fields and number != fields[name]:
                    raise Violation(f"rows at {self._positions}: {total.metric} {name} {number}, not {fields[name]}")
