"""The values of a batch above the memory limit, in a temporary file."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from support.topic import FIRST, counter
from tallystream_aggregator.spark.catch_up.encoding import Spill
from tallystream_aggregator.table import Record, State, Table
from tallystream_aggregator.table.table import run_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


def records(value: bytes, number: int) -> Iterator[Record]:
    """Yield records that nothing else refers to, as Spark does."""
    for offset in reversed(range(number)):
        yield Record("metrics", 0, offset, 1_700_000_000_000, b"app-1", value % offset)


def test_a_large_value_is_read_back_from_the_file() -> None:
    """A small value stays in memory, and a tombstone stays one. Records of two partitions may have the same offset."""
    first = Record("metrics", 0, 1, 0, b"a", b"12345")
    second, gone, third = first._replace(partition=1, value=b"6789"), first._replace(offset=2, value=None), first
    with Spill(7) as spill:
        kept = [spill.put(record) for record in (first, second, gone)]
        assert [record.value for record in kept] == [b"12345", None, None]
        assert [spill.load(record) for record in kept] == [first, second, gone]
        assert spill.load(third) == first


@pytest.mark.parametrize("kind", ["snapshots", "unreadable"])
def test_a_batch_of_large_records_needs_little_memory(kind: str) -> None:
    """400 MiB of snapshots of one instance, or of undecodable records, need less than 200 MiB. All are applied."""
    plain = {"v": 1, "app": "shop", "life": FIRST, "part": 0, "ts": 0, "every_ms": 1000, "final": False}
    body = json.dumps({**plain, "metrics": [counter(1)], "more": "x" * (MIB - 300)}).encode()
    value = b"%%{%d" + b"x" * (MIB - 20) if kind == "unreadable" else b'{"seq":1%03d,' + body[1:]
    table = Table(State())
    tracemalloc.start()
    try:
        with Spill(64 * MIB) as spill:
            changes = run_batch(table, [spill.put(one) for one in records(value, 400)], load=spill.load)
        assert tracemalloc.get_traced_memory()[1] < 200 * MIB
    finally:
        tracemalloc.stop()
    letters = [json.loads(letter.value()) for letter in changes.dead]
    if kind == "snapshots":
        assert (letters, table.state.lives["app-1"][0].parts) == ([], {0: 1399})
    else:
        assert [letter["offset"] for letter in letters] == list(range(400))
        assert {letter["bytes"] > MIB - 50 for letter in letters} == {True}


def test_the_quotations_in_dead_letters_are_limited() -> None:
    """Those of a record have 8 KiB together, and each has the size and the offset of the record."""
    changes = run_batch(Table(State()), [*records(b"{%d" + b"x" * 65_536, 2)])
    letters = [json.loads(letter.value()) for letter in changes.dead]
    assert [(one["bytes"], len(one["value"]), one["offset"]) for one in letters] == [
        (65_538, 8_192, 0),
        (65_538, 8_192, 1),
    ]
