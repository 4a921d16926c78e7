"""The states of shards that are made from rows."""

from __future__ import annotations

from support.steps import run
from support.topic import BEGIN_MS
from tallystream_aggregator.table import State, Table
from tallystream_aggregator.table.records.decode import Record
from tallystream_aggregator.table.records.shards import shard_of
from tallystream_aggregator.table.restore import LatestRows, restore


def test_the_lives_of_a_table_are_divided_among_more_shards() -> None:
    """All shards have the positions and times of those whose rows they are made of."""
    table, latest, names = Table(State()), LatestRows(), [f"app-{number}" for number in range(20)]
    for offset, name in enumerate(names):
        value = b'{"name":"n","value":5}'
        for row in run(table, [Record("metrics", 0, offset, BEGIN_MS + offset, name.encode(), value)]).rows:
            latest.add(row.key, row.value())
    states = restore(latest, shards=3).states
    assert [(state.clocks, state.offsets) for state in states] == [
        ({"metrics:0": BEGIN_MS + 19}, {"metrics:0": 19})
    ] * 3
    assert [set(state.lives) for state in states] == [
        {name for name in names if shard_of(name.encode(), 3) == shard} for shard in range(3)
    ]
