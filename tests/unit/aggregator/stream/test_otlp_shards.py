"""Several shards read an OTLP topic: each record is refused by one of them."""

from __future__ import annotations

import pytest

from support.otlp import counter, encode, number, resource_metrics
from support.schedules import BEGIN_MS
from tallystream_aggregator.otlp import decode
from tallystream_aggregator.otlp.decode import ResourceData
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


@pytest.mark.parametrize("value", [b"\xff\xff", b"x" * 2_000_000, b"instances"], ids=["no OTLP", "too large", "good"])
def test_each_shard_decodes_a_record_once_at_most(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is refused: the value, its size, or the data of each of many resources without a valid instance."""
    if value == b"instances":
        bad = [resource_metrics([counter("n", number(1))], service__instance__id=f"\0{n}") for n in range(5)]
        good = [resource_metrics([counter("n", number(1))], service__instance__id=f"app-{n}") for n in range(5)]
        value = encode(*bad, *good)
    decoded: list[int] = []
    original = decode.read

    def counting(content: bytes) -> list[ResourceData]:
        decoded.append(len(content))
        return original(content)

    monkeypatch.setattr(decode, "read", counting)
    letters, records = read(b"app-1", value)
    assert (letters, records) == (5 if b"app-" in value else 1, 1)
    assert len(decoded) <= SHARDS
