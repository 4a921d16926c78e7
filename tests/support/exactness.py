"""Compares the published sums of an aggregator with two references: verify's replay of the topic, and journals.

The journals are those of support/fleet.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from support.fleet import NAME, Fleet
from support.kafka import Servers, committed, end_offsets, latest_sums, read_topic
from support.replayed import TopicRecord
from support.wait import wait_until
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.verify import job as verify

POSITIONS = b'["positions",'
"""How the key of a positions row begins. It ends each transaction."""


def assert_exact(broker: Servers, topics: Topics) -> None:
    """Wait until all of `metrics` is committed. Then verify must find no difference, and have compared all of it."""
    ends = end_offsets(broker.bootstrap_servers, topics.metrics)
    wait_all_committed(broker.bootstrap_servers, topics, ends)
    found = verify.run(Cluster(broker.bootstrap_servers, topics.prefix))
    assert not found.differences, found.differences
    assert all(found.ends.get(f"{topics.metrics}:{partition}", 0) >= end for partition, end in ends.items()), found.ends


def wait_all_committed(bootstrap_servers: str, topics: Topics, ends: dict[int, int]) -> None:
    """Wait until the aggregator has committed these offsets of `metrics`, by partition."""
    group = topics.prefix + "tallystream-aggregator"

    def reached() -> bool:
        return all(committed(bootstrap_servers, group, topics.metrics, p) >= end for p, end in ends.items())

    wait_until(reached, 300, f"the offsets {ends} (partition: end) are committed")


def assert_as_acknowledged(broker: Servers, topics: Topics, fleets: Sequence[Fleet]) -> None:
    """Check that every acknowledged increment is summed, and that every malformed record is a dead letter."""
    for fleet in fleets:
        assert counts(broker, topics, fleet.app) == fleet.journal.totals()
    assert dead_letters(broker, topics) == set().union(*(fleet.journal.malformed for fleet in fleets))


def counts(broker: Servers, topics: Topics, app: str = "orders") -> dict[str, int | None]:
    """Return the counts that the journals of an app have, by part."""
    found = latest_sums(broker.bootstrap_servers, topics.agg).items()
    return {dict(tags)["part"]: row.count for (of, name, _, tags), row in found if (of, name) == (app, NAME)}


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
