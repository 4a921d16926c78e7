"""A plain replay of the topic `metrics`: dictionaries and the json module, nothing of the table's code.

It knows what the demonstration publishes: snapshots with life and seq, no tombstones, no short form.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Name = tuple[str, str]
"""(metric with its tags as text, field)"""

SUMMED = {"counter": ("count",), "meter": ("count",), "histogram": ("count", "sum"), "timer": ("count",)}


def replay(records: Iterable[tuple[bytes, bytes]]) -> dict[Name, float]:
    """Return the sums over all lives: the newest value of each, added up; positions: the highest, and the lowest start.

    `records` are (key, value) in offset order.
    """
    newest: dict[tuple[bytes, str], tuple[int, dict[str, dict[str, Any]]]] = {}
    for key, value in records:
        snapshot = json.loads(value)
        life = (key, snapshot["life"])
        seq, metrics = newest.get(life, (0, {}))
        if snapshot["seq"] > seq:
            metrics |= {_label(metric): metric for metric in snapshot["metrics"]}
            newest[life] = (snapshot["seq"], metrics)
    sums: dict[Name, float] = {}
    for _, metrics in newest.values():
        for label, metric in metrics.items():
            for field in SUMMED.get(metric["type"], ()):
                sums[label, field] = sums.get((label, field), 0) + metric.get(field, 0)
            if metric["type"] == "position":
                sums[label, "position"] = max(sums.get((label, "position"), 0), metric["position"])
                sums[label, "start"] = min(sums.get((label, "start"), 2**63), metric["start"])
    return sums


def _label(metric: dict[str, Any]) -> str:
    tags = ",".join(f"{name}={value}" for name, value in sorted(metric.get("tags", {}).items()))
    return f"{metric['name']}{{{tags}}}" if tags else str(metric["name"])
