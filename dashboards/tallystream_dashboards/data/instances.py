"""Compute one line for each instance from the points that the shipper writes with `--rows`.

An instance has several lives after a restart, or if processes share its ID. The store has their points in one series,
and each point names its life. The lives are added up, as in the sum over all instances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tallystream_aggregator.sinks.base import INSTANCE_PREFIX
from tallystream_dashboards.data.lines import Line
from tallystream_dashboards.data.sums import GAUGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_aggregator.sinks.base import Field, PointReader, Series
    from tallystream_dashboards.data.lines import Period

FIELDS = ("count", "value", "position", "life")
"""The fields of an instance that are read."""

INTERVALS = 3
"""An instance is silent after this many reporting intervals without a report, as in the table (docs/record.md)."""
MIN_GAPS = 3
"""With fewer times between reports, the interval is not known."""
LIVING_MS = 180_000
"""How long an instance whose interval is not known is living after its last report, in ms."""
MIN_SILENT_MS = 15_000
"""An instance is not silent before this time without a report in the store: aggregator and shipper take some time."""

_OWN = {"app", "metric_type", "instance"}


def read_values(reader: PointReader, metric: str, app: str, period: Period) -> list[Series]:
    """Return the values of a metric of each instance in the period, and the last one before it.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    return reader.read(
        INSTANCE_PREFIX + metric,
        FIELDS,
        start_ms=period.start_ms,
        end_ms=period.until_ms,
        tags={"app": app},
        last_before=True,
    )


class Report(NamedTuple):
    """What an instance reported of a metric: in which life, empty in the short form, and whether it was the last time.

    `value` is a count, a gauge or a position; None: it has none.
    """

    ts_ms: int
    life: str
    value: float | int | None
    is_final: bool


def reports(series: Iterable[Series]) -> list[tuple[dict[str, str], list[Report]]]:
    """Return the reports of each metric of an instance, by its tags, in order of time."""
    by_tags: dict[tuple[tuple[str, str], ...], dict[str, dict[int, Field]]] = {}
    for one in series:
        fields = by_tags.setdefault(tuple(sorted(one.tags.items())), {})
        fields[one.field] = dict(zip(one.times_ms, one.values, strict=True))
    found = []
    for tags, fields in by_tags.items():
        lives, final = fields.pop("life", {}), fields.pop("final", {})
        values = next(iter(fields.values()), {})
        times_ms = sorted({*lives, *final, *values})
        of_tags = [Report(ts, str(lives.get(ts, "")), _number(values.get(ts)), ts in final) for ts in times_ms]
        found.append((dict(tags), of_tags))
    return found


@dataclass(slots=True)
class Life:
    """When a life of an instance reported, its newest counts by tags, and the time of its final report, 0: none."""

    times_ms: set[int] = field(default_factory=set)
    counts: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)
    final_ms: int = 0

    @property
    def first_ms(self) -> int:
        """The time of its first report."""
        return min(self.times_ms)

    @property
    def last_ms(self) -> int:
        """The time of its last report."""
        return max(self.times_ms)

    @property
    def count(self) -> int:
        """The newest count, over all tags."""
        return sum(self.counts.values())


Lives: TypeAlias = "dict[tuple[str, str], dict[str, Life]]"
"""Lives by the app and the name of the instance, and then by their IDs."""


def read_lives(
    reader: PointReader, metric: str, tags: Mapping[str, str], period: Period, *, last_before: bool = False
) -> Lives:
    """Return the lives that reported a metric in the period; with `last_before` also the last report before it.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    series = reader.read(
        INSTANCE_PREFIX + metric,
        ("count", "life", "final"),
        start_ms=period.start_ms,
        end_ms=period.until_ms,
        tags=tags,
        last_before=last_before,
    )
    found: Lives = {}
    for of, reported in reports(series):
        lives = found.setdefault((of.get("app", ""), of.get("instance", "")), {})
        for one in reported:
            life = lives.setdefault(one.life, Life())
            life.times_ms.add(one.ts_ms)
            if one.value is not None:
                life.counts[tuple(of.items())] = int(one.value)
            if one.is_final:
                life.final_ms = max(life.final_ms, one.ts_ms)
    return found


def by_instance(series: Iterable[Series]) -> list[Line]:
    """Return the value over time of each instance and combination of tags, largest first.

    Counts are added up over an instance's lives, gauges over its living lives. Of positions the highest is taken.
    """
    lines = [_line(tags, found) for tags, found in reports(series)]
    return sorted((line for line in lines if line.times_ms), key=lambda line: (-(line.last or 0), line.label))


def newest_values(series: Iterable[Series]) -> dict[str, list[tuple[dict[str, str], float | int | None]]]:
    """Return the newest values of the lines of `by_instance`: by instance, the metric's own tags and the value."""
    values: dict[str, list[tuple[dict[str, str], float | int | None]]] = {}
    for tags, found in reports(series):
        line = _line(tags, found)
        if line.times_ms:
            values.setdefault(tags.get("instance", ""), []).append((_own_tags(tags), line.last))
    return values


def silent_after_ms(lives: Iterable[Iterable[int]]) -> int:
    """Return after which time without a report an instance is silent, by the times of each life's reports.

    The store does not have the reporting interval. It is taken to be the median of the times between a life's reports.
    """
    gaps = [after - before for times_ms in lives for before, after in pairwise(sorted(times_ms))]
    return max(MIN_SILENT_MS, INTERVALS * median_low(gaps)) if len(gaps) >= MIN_GAPS else LIVING_MS


def caption(type_: str) -> str:
    """Return a sentence that says how the lives of an instance are combined for this type of metric."""
    if type_ in GAUGES:
        return "The living lives of an instance are added up: processes that share its ID."
    if type_ == "position":
        return "Of the lives of an instance in the period the highest position is drawn."
    return "The lives of an instance in the period are added up: restarts, and processes that share its ID."


def _label(tags: dict[str, str]) -> str:
    others = ", ".join(f"{key}={value}" for key, value in _own_tags(tags).items())
    return tags.get("instance", "") + (f" ({others})" if others else "")


def _own_tags(tags: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in sorted(tags.items()) if key not in _OWN}


def _line(tags: dict[str, str], found: Iterable[Report]) -> Line:
    type_ = tags.get("metric_type", "")
    points = [(one.ts_ms, one.life, one.value) for one in found if one.value is not None]
    totals = _living_total(points) if type_ in GAUGES else _total(points, highest=type_ == "position")
    return Line(_label(tags), [ts_ms for ts_ms, _, _ in points], [*totals])


def _number(value: Field | None) -> float | int | None:
    return value if isinstance(value, int | float) else None


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
    """Return, after each point, the sum of the newest values of the lives that are living then."""
    reported: dict[str, list[int]] = {}
    for now, life, _ in points:
        reported.setdefault(life, []).append(now)
    living_ms = silent_after_ms(reported.values())
    newest: dict[str, tuple[int, float]] = {}
    totals: list[float] = []
    for now, life, value in points:
        newest[life] = (now, value)
        newest = {name: point for name, point in newest.items() if now - point[0] <= living_ms}
        totals.append(sum(value for _, value in newest.values()))
    return totals
