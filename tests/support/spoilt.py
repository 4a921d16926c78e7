"""Snapshots of a life with all types of metrics, some of which are spoilt."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import msgspec

from support.malformed import BAD_METRICS, BAD_SKETCHES, ODD_METRICS
from support.schedules import TopicRecord
from tallystream.metrics.sketch import Sketch

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

BEGIN_MS = 1_700_000_000_000
LIFE = "01HF7YAT00" + "A" * 16
COUNTS = ("count", "start", "position")
NUMBERS = (*COUNTS, "sum", "value", "min", "max", "m1_rate", "p50")
ODD_NUMBERS: list[Any] = [0, -1, -0.5, 1.0, 2**63 - 1, 2**63, -(2**63), 10**30, 1e999, math.nan, None, True, "1", []]
ODD_TEXTS = [text for text in (*BAD_METRICS, *ODD_METRICS) if text[0] == "{" and len(text) < 1_000]
SKETCHES = [json.loads(text) for text in BAD_SKETCHES] + [None]


def sketch_of(values: list[float]) -> dict[str, Any]:
    """Return a sketch as a reporter sends it."""
    sketch = Sketch()
    sketch.add(values)
    found: dict[str, Any] = msgspec.to_builtins(sketch.encode())
    return found


def metrics_of(round_: int) -> list[dict[str, Any]]:
    """Return a metric of each type, whose counts grow with the round."""
    values = [1.0 + 10.0**n for n in range(round_)]
    spread = {"count": round_, "sum": sum(values), "min": -1, "max": 10.0**round_, "sketch": sketch_of(values)}
    return [
        {"type": "counter", "name": "c", "tags": {"a": "1", "b": ""}, "count": round_},
        {"type": "float_counter", "name": "f", "sum": round_ / 3},
        {"type": "updown", "name": "u", "value": -round_},
        {"type": "gauge", "name": "g", "value": 0.5 * round_},
        {"type": "meter", "name": "m", "count": round_, "m1_rate": 0.1 * round_},
        {"type": "histogram", "name": "h", **spread},
        {"type": "timer", "name": "t", **spread, "m5_rate": 1, "p50": 2},
        {"type": "position", "name": "p", "start": 3, "position": 3 + round_},
    ]


def spoil(chance: random.Random, snapshot: dict[str, Any]) -> None:
    """Change something in a snapshot, so that it may not be an ordinary one."""
    metrics = snapshot["metrics"]
    metric, at = chance.choice(metrics), chance.randrange(len(metrics))
    kind = chance.randrange(9)
    if kind == 0:
        metric[chance.choice(NUMBERS)] = chance.choice(ODD_NUMBERS)
    elif kind == 1:
        metric.pop(chance.choice(sorted(metric)))
    elif kind == 2:
        metric["sketch"] = chance.choice(SKETCHES)
    elif kind == 3:
        metrics[at] = json.loads(chance.choice(ODD_TEXTS), strict=False)
    elif kind == 4 and at:
        metrics.pop(at)
    elif kind == 5:
        metrics.append(dict(metric))
    elif kind == 6:
        snapshot[chance.choice(sorted(snapshot.keys() - {"metrics"}))] = chance.choice([*ODD_NUMBERS, LIFE])
    elif kind == 7:
        snapshot["final"], snapshot["complete"] = True, chance.random() < 0.5
    else:
        metric["name"] = chance.choice(["c", "new", "", "x" * 600])


def snapshots(chance: random.Random, rounds: int) -> Iterable[TopicRecord]:
    """Yield the snapshots of a life. Some are spoilt, some come again, and some are in another partition."""
    for offset in range(rounds):
        snapshot = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": offset + 1, "ts": 0, "every_ms": 1000}
        snapshot |= {"final": False, "metrics": metrics_of(chance.choice([offset, offset, 0]) + 1)}
        if chance.random() < 0.4:
            snapshot["prev"] = BEGIN_MS + chance.choice([0, 0, -(10**8)])
        for _ in range(chance.choice([0, 0, 0, 1, 2])):
            spoil(chance, snapshot)
        value = json.dumps(snapshot, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
        partition = int(chance.random() < 0.1)
        yield TopicRecord(b"app-1", value, BEGIN_MS + 100 * offset, partition, 2 * offset)
        if chance.random() < 0.1:
            again = chance.choice([value, None])
            yield TopicRecord(b"app-1", again, BEGIN_MS + 100 * offset, partition, 2 * offset + 1)
