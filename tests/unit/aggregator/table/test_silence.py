"""When lives fall silent, and clock records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support.steps import run
from support.topic import BEGIN_MS, FIRST, SECOND, counter, gauge
from tallystream_aggregator.table import Record, State, Table
from tallystream_aggregator.table.records.decode import CLOCK_KEY, NO_CLOCK_RECORD, clock_value

if TYPE_CHECKING:
    from support.steps import Published


def _record(partition: int, offset: int, at: int, *, final: bool = False) -> Record:
    """Return a snapshot of the partition's own instance, which reports once a second."""
    life = (FIRST, SECOND)[partition]
    value = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": offset + 1, "ts": 0, "every_ms": 1000}
    value |= {"final": final, "metrics": [gauge(5), counter(7)]}
    key = b"app-%d" % partition
    return Record("metrics", partition, offset, BEGIN_MS + at, key, json.dumps(value).encode())


def _living(changes: Published) -> list[int | None]:
    """Return the number of lives in the gauge's sum as a list, which is empty if the step did not publish it."""
    found = [total for total in changes.totals if total.metric[1] == "g"]
    return [total.number for total in found]


def _clock(partition: int, offset: int, at: int) -> Record:
    """Return a clock record."""
    return Record("metrics", partition, offset, BEGIN_MS + at, CLOCK_KEY, clock_value(BEGIN_MS + at))


def test_a_life_falls_silent_by_the_clock_of_its_own_partition() -> None:
    """Records of another partition do not matter. A clock record advances the clock as any record does."""
    table = Table(State())
    assert _living(run(table, [_record(0, 0, 0), _record(1, 0, 0)])) == [2]
    assert _living(run(table, [_record(0, 1, 9_000)])) == [2]
    assert _living(run(table, [_clock(1, 1, 2_999)])) == []
    assert _living(run(table, [_clock(1, 2, 3_000)])) == [1]
    assert _living(run(table, [_record(1, 3, 3_000)])) == [2]


def test_anything_else_with_the_key_of_the_clock_is_a_dead_letter_of_one_shard() -> None:
    """A tombstone, a snapshot and a clock record of another form are refused. Each of them advances the clock."""
    values = [None, b"", b'{"v":2,"wall_ms":1}', b'{"v":1,"wall_ms":-1}', b'{"v":1,"wall_ms":1} ', b'{"forget":{}}']
    shards = [Table(State(shard=shard, shards=2)) for shard in (0, 1)]
    for offset, value in enumerate([*values, _record(0, 0, 0).value]):
        changes = [run(table, [Record("metrics", 0, offset, BEGIN_MS + offset, CLOCK_KEY, value)]) for table in shards]
        assert [[letter.reason for letter in one.dead] for one in changes] == [[NO_CLOCK_RECORD], []]
        assert [table.state.clocks for table in shards] == [{"metrics:0": BEGIN_MS + offset}] * 2
    assert [table.state.records for table in shards] == [7, 0]
