"""A plain replay of the topic `metrics`: what the sums must be, by code that shares nothing with the table.

A dictionary of the newest snapshot's values for each instance, life and metric; then one sum for each metric. It takes
the fields that never depend on time: counts, sums, minima, maxima and positions; not gauges, rates or quantiles.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Number = int | float
Key = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, name, type, sorted tags)"""
Values = dict[str, Number]

FIELDS = {
    "counter": ("count",),
    "meter": ("count",),
    "histogram": ("count", "sum", "min", "max"),
    "timer": ("count", "sum", "min", "max"),
    "position": ("start", "position"),
}


class Replay:
    """Takes the records of `metrics` in offset order."""

    def __init__(self) -> None:
        self.records = 0
        self._seqs: dict[tuple[str, str, int], int] = {}
        self._rows: dict[tuple[str, str, Key], Values] = {}

    def take(self, key: bytes, value: bytes) -> None:
        """Take one record: an instance's snapshot. Within a life and part, the highest seq wins.

        A record without a value takes an instance away. The demonstration does that to none of its own, the aggregator
        to one that nobody is, to move the time on.
        """
        if not value:
            if any(known == key.decode() for known, _, _ in self._seqs):
                raise ValueError(f"{key!r} was taken away, which nothing here does")
            return
        snapshot, instance = json.loads(value), key.decode()
        self.records += 1
        life, seq = snapshot["life"], snapshot["seq"]
        place = (instance, life, snapshot.get("part", 0))
        if seq <= self._seqs.get(place, 0):
            return
        self._seqs[place] = seq
        for metric in snapshot["metrics"]:
            self._put(instance, life, snapshot["app"], metric)

    def _put(self, instance: str, life: str, app: str, metric: dict[str, Any]) -> None:
        fields = FIELDS.get(metric["type"])
        if fields is not None:
            tags = tuple(sorted(metric.get("tags", {}).items()))
            values = {name: metric[name] for name in fields if metric.get(name) is not None}
            self._rows[instance, life, (app, metric["name"], metric["type"], tags)] = values

    def sums(self) -> dict[Key, Values]:
        """Return the sum of each metric over all lives: counts added, minima and maxima and positions compared."""
        lives: dict[Key, list[Values]] = {}
        for (_, _, key), values in self._rows.items():
            lives.setdefault(key, []).append(values)
        return {key: _sum(rows) for key, rows in lives.items()}

    def counts(self, name: str) -> dict[str, int]:
        """Return the count of a counter by instance, over all its lives."""
        found: dict[str, int] = {}
        for (instance, _, key), values in self._rows.items():
            if key[1] == name and key[2] == "counter":
                found[instance] = found.get(instance, 0) + int(values["count"])
        return found

    def lives(self, instance: str) -> int:
        """Return how many lives an instance had."""
        return len({life for known, life, _ in self._rows if known == instance})


def replay(records: Iterable[tuple[bytes, bytes]]) -> Replay:
    """Return the replay of records, (key, value) in offset order."""
    made = Replay()
    for key, value in records:
        made.take(key, value)
    return made


def _sum(rows: list[Values]) -> Values:
    result: Values = {}
    for field in rows[0].keys() | {name for row in rows for name in row}:
        column = [row[field] for row in rows if field in row]
        if field in ("min", "start"):
            result[field] = min(column)
        elif field in ("max", "position"):
            result[field] = max(column)
        elif field == "count":
            result[field] = sum(column)
        else:
            result[field] = math.fsum(column)
    return result
