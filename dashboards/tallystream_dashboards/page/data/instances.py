"""Compute one line for each instance from the points that the shipper writes with `--rows`. Pure.

An instance has several lives after a restart, or if processes share its ID. The store has their points in one series,
and each point names its life. The lives are added up, as in the sum over all instances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.page.data.lines import Line
from tallystream_dashboards.page.data.sums import GAUGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.sinks.base import Series

FIELDS = ("count", "value", "position", "life")
"""The fields of an instance that are read."""

LIVING_MS = 180_000
"""How long a life's gauge counts after its last point, in ms: an instance is living for 180 s (docs/record.md)."""

_OWN = {"app", "metric_type", "instance"}


def by_instance(series: Iterable[Series]) -> list[Line]:
    """Return the value over time of each instance and combination of tags, largest first.

    Counts are added up over an instance's lives, gauges over its living lives. Of positions the highest is taken.
    """
    by_tags: dict[tuple[tuple[str, str], ...], dict[str, Series]] = {}
    for one in series:
        by_tags.setdefault(tuple(sorted(one.tags.items())), {})[one.field] = one
    lines = [
        _line(_label(dict(tags)), one, fields.get("life"))
        for tags, fields in by_tags.items()
        for field, one in fields.items()
        if field != "life" and one.times_ms
    ]
    return sorted(lines, key=lambda line: (-(line.last or 0), line.label))


def caption(type_: str) -> str:
    """Return a sentence that says how the lives of an instance are combined for this type of metric."""
    if type_ in GAUGES:
        return "The living lives of an instance are added up: processes that share its ID."
    if type_ == "position":
        return "Of the lives of an instance in the period the highest position is drawn."
    return "The lives of an instance in the period are added up: restarts, and processes that share its ID."


def _label(tags: dict[str, str]) -> str:
    others = ", ".join(f"{key}={value}" for key, value in sorted(tags.items()) if key not in _OWN)
    return tags.get("instance", "") + (f" ({others})" if others else "")


def _line(label: str, series: Series, life: Series | None) -> Line:
    lives = dict(zip(life.times_ms, life.values, strict=True)) if life else {}
    points = [
        (time, str(lives.get(time, "")), value)
        for time, value in zip(series.times_ms, series.values, strict=True)
        if isinstance(value, int | float)
    ]
    totals = _living_total(points) if series.field == "value" else _total(points, highest=series.field == "position")
    return Line(label, [time for time, _, _ in points], [*totals])


def _total(points: Sequence[tuple[int, str, float]], *, highest: bool) -> list[float]:
    """Return, after each point, the sum of each life's newest value, or the highest value."""
    newest: dict[str, float] = {}
    totals: list[float] = []
    total: float = 0
    for _, life, value in points:
        total = max(total, value) if highest else total + value - newest.get(life, 0)
        newest[life] = value
        totals.append(total)
    return totals


def _living_total(points: Sequence[tuple[int, str, float]]) -> list[float]:
    newest: dict[str, tuple[int, float]] = {}
    totals: list[float] = []
    for now, life, value in points:
        newest[life] = (now, value)
        newest = {name: point for name, point in newest.items() if now - point[0] < LIVING_MS}
        totals.append(sum(value for _, value in newest.values()))
    return totals
