"""The sums of all records of a topic, computed by a table of the test."""

from __future__ import annotations

from support.kafka import read_topic
from support.steps import run
from tallystream_aggregator import sums
from tallystream_aggregator.table import Record, State, Table


def topic_sums(servers: str, topic: str) -> dict[str, list[sums.Sum]]:
    """Return the sums by name over the instances that report to a topic like `metrics`; no record may be malformed."""
    records = [
        Record(topic, read.partition, read.offset, read.timestamp_ms, read.key, read.value)
        for read in read_topic(servers, topic)
    ]
    changes = run(Table(State()), records)
    assert changes.dead == []
    found: dict[str, list[sums.Sum]] = {}
    for total in changes.totals:
        row = sums.decode(total.value())
        found.setdefault(row.name, []).append(row)
    return found
