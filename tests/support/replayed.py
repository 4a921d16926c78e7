"""What verify's replay makes of the records of `metrics`, in the form in which tests compare it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tallystream_aggregator.verify.lives import Settings, Tags
from tallystream_aggregator.verify.published import NO_NUMBERS, read_sum, unequal
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.sums import sum_of

Key = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, name, type, sorted tags)"""

LASTING = {"count", "sum", "min", "max", "start", "position", "bounds", "counts"}
"""The fields that do not depend on living lives, except in gauges and updowns."""


class TopicRecord(NamedTuple):
    """A record of a topic as it is on the broker. `timestamp_ms` is the append time."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    partition: int
    offset: int


@dataclass
class Replayed:
    """The table that verify makes of records.

    `dead` counts the dead letters of each (partition, offset).
    """

    table: Replay
    dead: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, records: Iterable[TopicRecord]) -> None:
        for one in records:
            refused = self.table.apply(f"metrics:{one.partition}", one.timestamp_ms, one.key, one.value)
            if refused:
                self.dead[one.partition, one.offset] += len(refused)

    @property
    def events(self) -> Counter[tuple[str, str, str, str, int, str]]:
        return Counter(self.table.noted.events)

    @property
    def keys(self) -> set[Key]:
        """The metrics that have a sum."""
        return {(app, name, kind, tags) for app, kind, name, tags in self.table.held()}

    @property
    def sums(self) -> dict[Key, dict[str, Any]]:
        """The fields of every sum."""
        return {(app, name, kind, tags): fields for (app, kind, name, tags), fields in self.table.sums().items()}

    def differing(self, found: Mapping[Key, Mapping[str, Any]], keys: Iterable[Key] | None = None) -> dict[Key, Any]:
        """Return the fields in which sums differ from the replay's. `keys` are those to compare, by default all."""
        sums = self.sums
        keys = found.keys() | sums.keys() if keys is None else keys
        differing = {key: unequal(found.get(key, {}), sums[key] if key in sums else sum_of(key[2], [])) for key in keys}
        return {key: fields for key, fields in differing.items() if fields}


def replay(
    records: Iterable[TopicRecord],
    *,
    shards: int = 1,
    drop_tags: tuple[str, ...] = (),
    keep_tags: tuple[str, ...] | None = None,
    **rules: Any,
) -> Replayed:
    """Replay records in this order. The sums lack the tags `drop_tags`, or all but `keep_tags`."""
    kept = None if keep_tags is None else frozenset(keep_tags)
    replayed = Replayed(Replay(Settings(**rules, tags=Tags(frozenset(drop_tags), kept))))
    replayed.table.split(shards)
    replayed.add(records)
    return replayed


def lasting(sums: Mapping[Key, Mapping[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Return the fields of sums that do not depend on living lives."""
    return {
        key: {} if key[2] in ("gauge", "updown") else {name: fields.get(name) for name in LASTING}
        for key, fields in sums.items()
        if key[2] != "instances"
    }


def fields_of(value: bytes) -> dict[str, Any]:
    """Return the numbers in a record of `metrics-agg`."""
    content = {name: number for name, number in read_sum(value).items() if name not in NO_NUMBERS}
    return {"lives": 0, "instances": 0} | content
