"""What the comparisons with the table do not show of the replay: its memory, its limits, and hostile records.

That it has the rules of docs/table.md is shown by `table/test_properties.py`, and the table by an example of each rule.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from support.buckets import buckets
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay

BEGIN_MS, DAY_MS = 1_700_000_000_000, 86_400_000
MAX_INT64 = 2**63 - 1
LIFE = "01HF7YAT00" + "A" * 16
HEADER = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}


def counter(count: int, name: str = "n") -> dict[str, Any]:
    return {"type": "counter", "name": name, "count": count}


def add(replay: Replay, *metrics: Any, key: bytes = b"app-1", at: int = 0, **header: Any) -> list[str]:
    """Append a snapshot, `at` ms after the beginning, and return why what is refused. `header` overrides its fields."""
    return replay.apply("metrics:0", BEGIN_MS + at, key, json.dumps({**HEADER, **header, "metrics": metrics}).encode())


def sum_of(replay: Replay, name: str = "n") -> dict[str, Any]:
    """Return the sum of the metric `name`."""
    (fields,) = [fields for identity, fields in replay.sums().items() if identity[2] == name]
    return fields


def test_each_shard_has_room_of_its_own_also_after_a_split() -> None:
    """The third life has no room beside the others, and has when its shard has only one of them."""
    replay = Replay(Settings(max_table_bytes=6_000))
    instances = [b"app-0", b"app-4", b"app-1"]  # of the shards 1, 0 and 1 of two
    found = [add(replay, key=key, app=key.decode()) for key in instances]
    assert found == [[], [], ["no room for a life: bytes per table"]]
    replay.split(2)
    again = [add(replay, key=key, app=key.decode(), seq=2) for key in [*instances, b"app-2"]]
    assert [bool(refused) for refused in again] == [False, False, False, True]


def test_forgotten_lives_are_kept_as_one() -> None:
    """Memory does not grow with them: each metric has one row of them. Counts, sums and sketches stay exact."""
    replay, times = Replay(), range(0, 20 * 8, 8)
    for at in times:
        values = {"count": 1, "sum": 0.1, "min": at, "max": at}
        sketch = {"scale": 6 - at % 3, "positive": buckets(at, 1)}
        gauge = {"type": "gauge", "name": "g", "value": 1}
        metrics = {"type": "histogram", "name": "h", **values, "sketch": sketch}, counter(2**62), gauge
        header: dict[str, Any] = {"life": f"01HF7YAT00{at:016}", "prev": BEGIN_MS + at * DAY_MS}
        assert add(replay, *metrics, key=b"app-%d" % at, at=at * DAY_MS, **header) == []
        wall_ms = BEGIN_MS + (at + 8) * DAY_MS
        replay.apply("metrics:0", wall_ms, b"tallystream-clock", b'{"v":1,"wall_ms":%d}' % wall_ms)
    found = sum_of(replay, "h")
    assert (found["count"], found["sum"], found["min"], found["max"]) == (20, math.fsum([0.1] * 20), 0, times[-1])
    assert sum(found["sketch"][1].values()) == found["retired"] == 20
    assert sum_of(replay) == {"count": MAX_INT64, "overflow": True, "lives": 0, "instances": 0, "retired": 20}
    assert sum_of(replay, "g") == {"number": 0, "lives": 0, "instances": 0, "retired": 0}
    (shard,) = replay._shards
    assert list(shard.room.uses.values()) == [1, 1, 0]
    assert shard.instances == {}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ['\\"', '"\\', "[]", '""', "]["], ids=repr)
def test_a_megabyte_of_hostile_text_is_refused_in_time_that_grows_with_its_size(text: str) -> None:
    """The text has open quotes, brackets, or both. In quadratic time each case would take more than an hour."""
    value = b"[" * 65 + b'"' + text.encode() * (1_000_000 // len(text))
    assert len(Replay().apply("metrics:0", BEGIN_MS, b"app-1", value)) == 1
