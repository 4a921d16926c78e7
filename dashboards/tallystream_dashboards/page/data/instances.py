"""Single instances, as the shipper writes them with `--rows`: a line for each. Pure.

An instance has several lives after a restart, and where processes share its ID: the store has their points in one
series, and each point names its life. Their lives are added up, as the sum over all instances is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.page.data.lines import Line
from tallystream_dashboards.page.data.sums import GAUGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.sinks.base import Series

FIELDS = ("count", "value", "position", "life")
"""What is read of an instance."""

LIVING_MS = 180_000
"""A life's gauge counts for so long after its last point: docs/record.md calls an instance living for that long."""

_OWN = {"app", "metric_type", "instance"}


def by_instance(series: Iterable[Series]) -> list[Line]:
    """Return the value of each instance over time, and of each combination of tags; the largest first.

    Counts of an instance's lives are added up, gauges those of its living lives; of positions the highest is taken.
    """
    found: dict[tuple[tuple[str, str], ...], dict[str, Series]] = {}
    for one in series:
        found.setdefault(tuple(sorted(one.tags.items())), {})[one.field] = one
    lines = [
        _line(_label(dict(tags)), one, fields.get("life"))
        for tags, fields in found.items()
        for field, one in fields.items()
        if field != "life" and one.times_ms
    ]
    return sorted(lines, key=lambda line: (-(line.last or 0), line.label))


def caption(type_: str) -> str:
    """Return what is drawn of the lives of an instance, for a metric of this type."""
    if type_ in GAUGES:
        return "The living lives of an instance are added up: processes that share its ID."
    if type_ == "position":
        return "Of the lives of an instance in the period the highest position is drawn."
    return "The lives of an instance in the period are added up: restarts, and processes that share its ID."


def _label(tags: dict[str, str]) -> str:
    others = ", ".join(f"{key}={value}" for key, value in sorted(tags.items()) if key not in _OWN)
    return tags.get("instance", "") + (f" ({others})" if others else "")


def _line(label: str, series: Series, life: Series | None) -> Line:
    names = dict(zip(life.times_ms, life.values, strict=True)) if life else {}
    points = [
        (time, str(names.get(time, "")), value)
        for time, value in zip(series.times_ms, series.values, strict=True)
        if isinstance(value, int | float)
    ]
    totals = _living(points) if series.field == "value" else _whole(points, highest=series.field == "position")
    return Line(label, [time for time, _, _ in points], [*totals])


def _whole(points: Sequence[tuple[int, str, float]], *, highest: bool) -> list[float]:
    """Return after each point the sum of each life's newest value, or the highest one."""
    newest: dict[str, float] = {}
    totals: list[float] = []
    total: float = 0
    for _, life, value in points:
        total = max(total, value) if highest else total + value - newest.get(life, 0)
        newest[life] = value
        totals.append(total)
    return totals


def _living(points: Sequence[tuple[int, str, float]]) -> list[float]:
    newest: dict[str, tuple[int, float]] = {}
    totals: list[float] = []
    for now, life, value in points:
        newest[life] = (now, value)
        newest = {name: known for name, known in newest.items() if now - known[0] < LIVING_MS}
        totals.append(sum(known for _, known in newest.values()))
    return totals
