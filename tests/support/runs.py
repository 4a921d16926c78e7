"""Run a table over the records of a random schedule, and compare it with verify: for test_properties.py."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from support.replayed import Replayed, TopicRecord, replay
from support.schedules import may_lower_counts
from support.tables import Ends, Sums, Tables, table_settings
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.times import HOUR_MS

FORGET_AFTER_MS = 50_000
RULES: dict[str, Any] = {"short_form_every_ms": 5_000, "forget_after_ms": FORGET_AFTER_MS}
RULES |= {"max_metrics": 8, "max_table_bytes": 40_000}
UNLIMITED: dict[str, Any] = {"short_form_every_ms": 5_000, "forget_after_ms": FORGET_AFTER_MS}
"""For tables that begin again from rows: docs/table.md exempts the memory of the table."""


def new_tables(records: Iterable[TopicRecord], rules: Mapping[str, Any], *args: Any, **kwargs: Any) -> Tables:
    return Tables(records, table_settings(**rules), *args, **kwargs)


def check(
    records: list[TopicRecord],
    steps: Iterable[Ends],
    rules: Mapping[str, Any] = RULES,
    tags: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    shards: int = 1,
) -> None:
    """Take the steps, and compare the table with the replay after each one."""
    tables = new_tables(records, rules, shards, sum_tags=sum_tags(tags))
    replayed = replay((), shards=shards, **rules, **tags)
    for ends in steps:
        before, first = dict(tables.sums), len(tables.published)
        read = tables.step(ends)
        replayed.add(read)
        assert tables.dead == replayed.dead
        assert not replayed.differing(tables.sums, {metric for metric, _ in tables.published[first:]})
        if not any(map(may_lower_counts, read)):
            require_no_fall(before, tables.sums)
    require_equal(tables, replayed)
    assert sum(state.stale for state in tables.states) == replayed.table.noted.stale
    assert sum(state.records for state in tables.states) == len(records)


def sum_tags(tags: Mapping[str, tuple[str, ...]]) -> SumTags:
    """Return the tags of the sums for the table. `tags` are those for the replay."""
    return SumTags(tags.get("drop_tags", ()), tags.get("keep_tags"))


def require_no_fall(before: Sums, after: Sums) -> None:
    """Fail if a count or a position is lower than before."""
    for key, fields in before.items():
        for name in ("count", "position"):
            assert after[key].get(name, 0) >= fields.get(name, 0), (key, name)


def require_equal(tables: Tables, wanted: Replayed) -> None:
    """Fail if sums, dead letters or events differ from the replay's."""
    assert not wanted.differing(tables.sums)
    require_all_sums(tables, wanted)
    assert tables.dead == wanted.dead
    assert tables.events == wanted.events
    assert sum(state.dead for state in tables.states) == tables.dead.total()


def require_all_sums(tables: Tables, wanted: Replayed) -> None:
    """Fail if the tables have other sums than the replay now."""
    require_sums(tables.all_sums(), wanted)


def require_sums(now: Sums, wanted: Replayed) -> None:
    """Fail if these are other sums than the replay's. They may lack those that are empty."""
    assert not wanted.differing(now, now.keys() | {key for key, fields in wanted.sums.items() if any(fields.values())})


def move(records: list[TopicRecord], chance: random.Random) -> list[TopicRecord]:
    """Return the records with each instance sometimes moved to another of three partitions."""
    partitions: dict[bytes | None, int] = {}
    sizes: Counter[int] = Counter()
    moved = []
    for record in records:
        partition = partitions.get(record.key, 0)
        partitions[record.key] = partition = chance.randrange(3) if chance.random() < 0.15 else partition
        moved.append(record._replace(partition=partition, offset=sizes[partition]))
        sizes[partition] += 1
    return moved


def jump(records: list[TopicRecord], hours: list[int]) -> list[TopicRecord]:
    """Return the records with append times of a broker whose clock is wrong by these hours, each for ten records."""
    off_ms = (hours[number // 10 % len(hours)] * HOUR_MS for number in range(len(records)))
    return [r._replace(timestamp_ms=r.timestamp_ms + off) for r, off in zip(records, off_ms, strict=True)]


def take(steps: Iterable[Ends], tables: Tables, chance: random.Random, broken: float) -> list[TopicRecord]:
    """Take the steps, and return the records in the order in which they were read.

    Before this share of the steps the table begins again. No count falls unless a record removes it.
    """
    found = []
    for ends in steps:
        while chance.random() < broken:
            tables.begin_again(from_rows=chance.random() < 0.5)
        before = dict(tables.sums)
        read = tables.step(ends)
        found += read
        if not any(map(may_lower_counts, read)):
            require_no_fall(before, tables.sums)
    return found
