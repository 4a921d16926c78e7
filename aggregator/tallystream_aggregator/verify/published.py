"""Reads what the aggregator published, rows of `metrics-agg` as in docs/topics.md, with the standard library."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.verify.decode import Identity

Place = str
"""A topic and the number of a partition, as in "metrics:0"."""

Ends = dict[Place, int]
"""partition → the next offset. All records below it are included."""


_NO_SUM = (TypeError, KeyError, AttributeError, ValueError, OverflowError, RecursionError)
"""The errors of reading any JSON: OverflowError for an infinite number, RecursionError for deep nesting."""


def flat(offsets: Mapping[str, Mapping[Any, int]]) -> Ends:
    """Return offsets by topic and partition as offsets by place."""
    return {f"{topic}:{int(p)}": int(offset) for topic, ps in offsets.items() for p, offset in ps.items()}


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One row: `fields` as in the JSON, `written` as (epoch, batch). `ends` is None if the row has no offsets."""

    identity: Identity
    fields: dict[str, Any]
    ts_ms: int
    ends: Ends | None
    written: tuple[int, int]

    def within(self, ends: Ends) -> bool:
        """Return whether everything that it includes is below `ends`."""
        return self.ends is not None and all(end <= ends.get(p, 0) for p, end in self.ends.items())


def parse(key: bytes | None, value: bytes) -> TableRecord:
    """Return a row of `metrics-agg`.

    Raises:
        ValueError: it is not a sum.
    """
    try:
        app, kind, name, tags = json.loads(key or b"")
        identity = (str(app), str(kind), str(name), tuple(sorted((str(n), str(v)) for n, v in tags)))
        content = json.loads(value)
        ends = {place: last + 1 for place, last in flat(content.get("offsets", {})).items()}
        written = (int(content.get("epoch", 0)), int(content.get("batch", 0)))
        return TableRecord(identity, content, int(content["ts"]), ends or None, written)
    except _NO_SUM as error:
        raise ValueError(f"no sum: {error!r}") from error


@dataclass(slots=True)
class Sums:
    """Collects rows: the `newest` of each metric up to `end`, and with `begin` all rows between the two in `period`.

    The newest row has the highest (epoch, batch). `later` are the metrics that have a row beyond `end`. A row whose
    epoch is above `bound`, the highest of the ledger, was not written by an aggregator: `beyond` has the last one of
    each metric, and it replaces no other row. If `bound` is None, every epoch is accepted. `unreadable` counts records
    that are not sums.
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
        """Add one record of `metrics-agg`. A null value is ignored."""
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
    """Return the partition and the offset of a dead letter's record, None if the dead letter has none."""
    try:
        content = json.loads(value or b"")
        return f"{content['topic']}:{int(content['partition'])}", int(content["offset"])
    except _NO_SUM:
        return None
