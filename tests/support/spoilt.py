"""Snapshots of a schedule that are spoilt: numbers that fall, are missing or are none, other metrics and fields."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator
from typing import Any

from support.malformed import BAD_METRICS, BAD_SKETCHES, ODD_METRICS
from support.replayed import TopicRecord

COUNTS = ("count", "start", "position")
NUMBERS = (*COUNTS, "sum", "value", "min", "max", "m1_rate", "p50")
ODD_NUMBERS: list[Any] = [0, -1, -0.5, 1.0, 2**63 - 1, 2**63, -(2**63), 10**30, 1e999, math.nan, None, True, "1", []]
ODD_TEXTS = [text for text in (*BAD_METRICS, *ODD_METRICS) if text[0] == "{" and len(text) < 1_000]
SKETCHES = [json.loads(text) for text in BAD_SKETCHES] + [None]


def spoil(chance: random.Random, snapshot: dict[str, Any]) -> None:
    """Change something in a snapshot, so that it may not be an ordinary one."""
    metrics = snapshot["metrics"]
    metric = chance.choice([one for one in metrics if isinstance(one, dict)])
    at = metrics.index(metric)
    kind = chance.randrange(9)
    if kind == 0:
        metric[chance.choice(NUMBERS)] = chance.choice(ODD_NUMBERS)
    elif kind == 1:
        metric.pop(chance.choice(sorted(metric)), None)
    elif kind == 2:
        metric["sketch"] = chance.choice(SKETCHES)
    elif kind == 3:
        metrics[at] = json.loads(chance.choice(ODD_TEXTS), strict=False)
    elif kind == 4 and at:
        metrics.pop(at)
    elif kind == 5:
        metrics.append(dict(metric))
    elif kind == 6:
        snapshot[chance.choice(sorted(snapshot.keys() - {"metrics"}))] = chance.choice(ODD_NUMBERS)
    elif kind == 7:
        snapshot["final"], snapshot["complete"] = True, chance.random() < 0.5
    else:
        metric["name"] = chance.choice(["s0", "new", "", "x" * 600])


def spoilt(chance: random.Random, records: Iterable[TopicRecord]) -> Iterator[TopicRecord]:
    """Yield the records, with many of their snapshots spoilt."""
    for record in records:
        value = record.value
        for _ in range(chance.choice([0, 0, 0, 1, 2])):
            value = _spoilt(chance, value)
        yield record._replace(value=value)


def _spoilt(chance: random.Random, value: bytes | None) -> bytes | None:
    try:
        snapshot = json.loads(value or b"")
    except (ValueError, RecursionError):
        return value
    if not isinstance(snapshot, dict) or not any(isinstance(one, dict) for one in snapshot.get("metrics", ())):
        return value
    spoil(chance, snapshot)
    return json.dumps(snapshot, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
