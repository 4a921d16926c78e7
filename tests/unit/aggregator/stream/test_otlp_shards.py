"""Several shards read an OTLP topic: each record is refused by one of them."""

from __future__ import annotations

import pytest

from support.schedules import BEGIN_MS
from tallystream_aggregator.stream.broker import Chunk, Place
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.table import State, Table, TableSettings

SHARDS = 3
SETTINGS = TableSettings(otlp_topics=("otlp",))


def read(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """Let each shard read a record. Return how many dead letters there are, and how many records are counted."""
    letters = records = 0
    for shard in range(SHARDS):
        table = Table(State(shard=shard, shards=SHARDS), SETTINGS)
        step = StepRecords(table)
        step.add(Chunk(Place("otlp", 0), [(0, BEGIN_MS, key, value)], 1))
        step.end()
        letters, records = letters + len(table.outputs().dead), records + table.state.records
    return letters, records


@pytest.mark.parametrize("key", [None, b"app-1", b"app-2", b"app-3"])
def test_a_record_that_is_refused_has_one_dead_letter(key: bytes | None) -> None:
    """That of the shard of its key: what is no OTLP, and a forget record for another number of shards."""
    assert read(key, b"\xff\xff") == (1, 1)
    assert read(key, b'{"forget":{"metric":"n","shards":9}}') == (1, 1)
