"""Compares the published sums of an aggregator with two references: a replay of the topic, and journals.

The replay is that of verify, the journals are those of support/fleet.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from support.fleet import NAME, Fleet
from support.kafka import Servers, committed, latest_sums, read_topic
from support.replayed import Key, TopicRecord, lasting, replay
from support.wait import wait_until
from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.kafka.topics import Topics

POSITIONS = b'["positions",'
"""How the key of a positions row begins. It ends each transaction."""


def assert_exact(
    broker: Servers,
    topics: Topics,
    earlier: Sequence[TopicRecord] = (),
    *,
    shards: int = 1,
    drop_tags: tuple[str, ...] = (),
    emptied: Iterable[Key] = (),
) -> dict[Any, Any]:
    """Wait until all of `metrics` is committed, then compare every sum, apart from what depends on living lives.

    `earlier` are the records that were read before they were deleted. The sums lack the tags `drop_tags`. The sums
    `emptied` were published under other tags before, and must be empty now. Return the expected sums.
    """
    records = [*earlier, *read_topic(broker.bootstrap_servers, topics.metrics)]
    ends: dict[int, int] = {}
    for record in records:
        ends[record.partition] = max(ends.get(record.partition, 0), record.offset + 1)
    wait_all_committed(broker.bootstrap_servers, topics, ends)
    newest = latest_sums(broker.bootstrap_servers, topics.agg)
    found = {key: row for key, row in newest.items() if key[2] != INSTANCES}
    wanted = lasting(replay(records, shards=shards, drop_tags=drop_tags).sums)
    for key in set(emptied) - wanted.keys():
        row = found.pop(key)
        assert not any((row.count, row.sum, row.lives, row.instances, row.number)), row
    wrong = {
        key: (found.get(key), wanted.get(key))
        for key in found.keys() | wanted.keys()
        if key not in found or key not in wanted or _fields(found[key], wanted[key]) != wanted[key]
    }
    assert not wrong, wrong
    return wanted


def wait_all_committed(bootstrap_servers: str, topics: Topics, ends: dict[int, int]) -> None:
    """Wait until the aggregator has committed these offsets of `metrics`, by partition."""
    group = topics.prefix + "tallystream-aggregator"

    def reached() -> bool:
        return all(committed(bootstrap_servers, group, topics.metrics, p) >= end for p, end in ends.items())

    wait_until(reached, 300, f"the offsets {ends} (partition: end) are committed")


def assert_as_acknowledged(broker: Servers, topics: Topics, fleets: Sequence[Fleet]) -> None:
    """Check that every acknowledged increment is summed, and that every malformed record is a dead letter."""
    found = latest_sums(broker.bootstrap_servers, topics.agg)
    for fleet in fleets:
        counts = {
            dict(tags)["part"]: row.count
            for (app, name, _, tags), row in found.items()
            if (app, name) == (fleet.app, NAME)
        }
        assert counts == fleet.journal.totals()
    assert dead_letters(broker, topics) == set().union(*(fleet.journal.malformed for fleet in fleets))


def dead_letters(broker: Servers, topics: Topics) -> set[tuple[int, int]]:
    """Return the partition and offset of every dead letter, without duplicates."""
    rows = (json.loads(one.value) for one in read_topic(broker.bootstrap_servers, topics.dead) if one.value)
    return {(row["partition"], row["offset"]) for row in rows}


def assert_published_once(broker: Servers, topics: Topics, seen: Mapping[str, Sequence[TopicRecord]] = {}) -> None:
    """Check what a reader with `read_committed` has seen: no count fell but by a tombstone, no position went back.

    Each dead letter, each event and each positions row is there once, and no claim is lower than the one before.
    `seen` has by topic what a reader has followed; other topics are read now.
    """
    servers = broker.bootstrap_servers

    def read_once(topic: str) -> Sequence[TopicRecord]:
        return seen[topic] if topic in seen else read_topic(servers, topic)

    tombstones = {(read.partition, read.offset) for read in read_topic(servers, topics.metrics) if read.value is None}
    newest: dict[bytes | None, Any] = {}
    for read in read_once(topics.agg):
        row, before = json.loads(read.value or b"{}"), newest.get(read.key)
        newest[read.key] = row
        if before is None:
            continue
        then, now = (one["offsets"].get(topics.metrics, {}) for one in (before, row))
        assert all(now.get(p, -1) >= offset for p, offset in then.items()), (before, row)
        if (row.get("count") or 0) < (before.get("count") or 0):
            forgotten = [at for at in tombstones if then.get(str(at[0]), -1) < at[1] <= now[str(at[0])]]
            assert forgotten, (before, row)
    for topic in (topics.dead, topics.events):
        values = [read.value for read in read_once(topic) if read.value]
        assert len(values) == len(set(values))
    steps: dict[int, list[dict[str, Any]]] = {}
    for read in read_once(topics.table):
        if (read.key or b"").startswith(POSITIONS):
            steps.setdefault(read.partition, []).append(json.loads(read.value or b"{}"))
    for of_shard in steps.values():
        assert [row["step"] for row in of_shard] == list(range(1, len(of_shard) + 1))
        claims = [row["claim"] for row in of_shard]
        assert claims == sorted(claims)


def _fields(row: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    found = {name: getattr(row, name) for name in wanted}
    return {name: None if value == [] else value for name, value in found.items()}  # a sum without bounds has none
