"""What the aggregator published: rows of `metrics-agg` as docs/topics.md has them, read with the standard library."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.verify.decode import Identity

Place = str
"""A partition, as in "metrics:0": its topic and its number."""

Ends = dict[Place, int]
"""partition → the next offset: everything below it is included."""


_NO_SUM = (TypeError, KeyError, AttributeError, ValueError, OverflowError, RecursionError)
"""What reading JSON of any kind raises: OverflowError for an infinite number, RecursionError for a deep one."""


def flat(offsets: Mapping[str, Mapping[Any, int]]) -> Ends:
    """Return offsets by topic and partition as offsets by place."""
    return {f"{topic}:{int(p)}": int(offset) for topic, ps in offsets.items() for p, offset in ps.items()}


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One row: its fields as they are in the JSON, and what it includes; `ends` is None where it does not say."""

    identity: Identity
    fields: dict[str, Any]
    ts_ms: int
    ends: Ends | None
    written: tuple[int, int]

    def within(self, ends: Ends) -> bool:
        """Tell whether everything that it includes lies below `ends`."""
        return self.ends is not None and all(end <= ends.get(p, 0) for p, end in self.ends.items())


def parse(key: bytes | None, value: bytes) -> TableRecord:
    """Return a row of `metrics-agg`.

    Raises:
        ValueError: it is no sum.
    """
    try:
        app, kind, name, tags = json.loads(key or b"")
        identity = (str(app), str(kind), str(name), tuple(sorted((str(n), str(v)) for n, v in tags)))
        said = json.loads(value)
        ends = {place: last + 1 for place, last in flat(said.get("offsets", {})).items()}
        written = (int(said.get("epoch", 0)), int(said.get("batch", 0)))
        return TableRecord(identity, said, int(said["ts"]), ends or None, written)
    except _NO_SUM as error:
        raise ValueError(f"no sum: {error!r}") from error


@dataclass(slots=True)
class Sums:
    """Gathers rows. Of each metric the newest up to `end` holds; with `begin` every one between the two is kept.

    The newest is the one with the highest (epoch, batch). `later` are the metrics that have a row beyond `end`,
    `beyond` has the last row of each metric whose epoch is above `bound`, the highest that the ledger has (None bounds
    nothing): no aggregator wrote it, and it hides no other. `unreadable` counts what is no sum.
    """

    end: Ends | None = None
    begin: Ends | None = None
    newest: dict[Identity, TableRecord] = field(default_factory=dict)
    period: list[TableRecord] = field(default_factory=list)
    later: set[Identity] = field(default_factory=set)
    unreadable: int = 0
    bound: int | None = None
    beyond: dict[Identity, TableRecord] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record of `metrics-agg`; a null value says nothing."""
        if value is None:
            return
        try:
            row = parse(key, value)
        except ValueError:
            self.unreadable += 1
            return
        if self.bound is not None and row.written[0] > self.bound:
            self.beyond[row.identity] = row
            return
        if self.end is not None and not row.within(self.end):
            self.later.add(row.identity)
            return
        if self.begin is not None and not row.within(self.begin):
            self.period.append(row)
        before = self.newest.get(row.identity)
        if before is None or row.written >= before.written:
            self.newest[row.identity] = row

    def to_compare(self) -> list[TableRecord]:
        """Return the rows to compare: the newest ones, or those of the period."""
        return list(self.newest.values()) if self.begin is None else self.period


def letter_of(value: bytes | None) -> tuple[Place, int] | None:
    """Return the partition and the offset that a dead letter is about, None where it is about none."""
    try:
        said = json.loads(value or b"")
        return f"{said['topic']}:{int(said['partition'])}", int(said["offset"])
    except _NO_SUM:
        return None
