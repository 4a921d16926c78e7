"""What the page needs from the store, for one refresh: the only module of the page that reads points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream.aggregator.health.figures import APP as OWN_APP
from tallystream.aggregator.ship.translating import is_sum
from tallystream.dashboards.lag.evaluate import GroupState, evaluate
from tallystream.dashboards.lag.model import LAG
from tallystream.dashboards.page import lags, sums
from tallystream.dashboards.page.lines import Line, clip, thin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.aggregator.sinks.base import PointReader, Series
    from tallystream.dashboards.page.selection import Selection

MAX_MEASUREMENTS = 500
"""How many metrics the tables look at: a page is for people."""
MAX_LINES = 20
"""How many lines a chart holds before nobody can tell them apart."""
AHEAD_MS = 60_000
"""Points may carry the broker's clock: one that is a little ahead of the page's is shown all the same."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines for a chart, thinned out; `left_out` counts those that there was no room for."""

    lines: tuple[Line, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class SumsView:
    """What is shown of the sums.

    `app` and `metric` are what was chosen, or the first there is, of metrics the first counter; None: there is none.
    Sums are known to hold until `until_ms`.
    """

    apps: tuple[str, ...]
    app: str | None
    names: tuple[str, ...]
    metric: str | None
    chosen: tuple[sums.Metric, ...]
    over_time: Drawn
    instances: Drawn
    rows: tuple[sums.SumRow, ...]
    left_out: int
    as_of_ms: int | None
    until_ms: int


@dataclass(frozen=True, slots=True)
class LagView:
    """What is shown of lag: groups, worst first, and their states. `partitions` are those of the chosen group."""

    groups: tuple[lags.GroupRow, ...]
    states: Mapping[str, GroupState]
    drawn: Drawn
    partitions: tuple[lags.PartitionRow, ...]
    as_of_ms: int | None


def read_lag(reader: PointReader, selection: Selection, *, now_ms: int) -> LagView:
    """Read the lag of every group in the chosen period, or the last that is known where the period has none.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    start_ms, end_ms = now_ms - selection.range_s * 1000, now_ms + AHEAD_MS
    found = reader.read(LAG, lags.FIELDS, start_ms=start_ms, end_ms=end_ms)
    silent = not found
    if silent:
        found = _last_rounds(reader, start_ms)
    groups = lags.by_group(found)
    rows = lags.group_rows(groups)
    as_of_ms = max((row.seen_ms for row in rows), default=None)
    # The collector's clock may be ahead of the page's: its newest round is not in the future.
    states = {state.group: state for state in evaluate(found, now_ms=max(now_ms, as_of_ms or 0))}
    order = {group: number for number, group in enumerate(states)}
    rows.sort(key=lambda row: order[row.group])
    mine = groups.get(selection.group, {}) if selection.group else {}
    lines = lags.partition_lines(mine) if selection.group else [row.trend for row in rows if row.lag is not None]
    lines.sort(key=lambda line: -(line.last or 0))
    # Lag is asked for at an interval: the last answer is drawn where it was given and no further.
    drawn = Drawn(()) if silent else _draw(lines, start_ms, None)
    return LagView(tuple(rows), states, drawn, tuple(lags.partition_rows(mine)), as_of_ms)


def read_sums(reader: PointReader, selection: Selection, *, now_ms: int, until_ms: int | None) -> SumsView:
    """Read the newest value of every sum, and the chosen metric over the chosen period.

    A sum is written when it changes: until `until_ms`, when the pipeline was last known to be alive, the last value is
    drawn on.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    names = [name for name in reader.measurements() if name != LAG and is_sum(name)]
    latest = [series for name in names[:MAX_MEASUREMENTS] for series in _newest(reader, name, now_ms + AHEAD_MS)]
    everything = sums.metrics(latest)
    apps = sorted({metric.app for metric in everything})
    # The system's own figures are there by choice, not first.
    app = selection.app or next((app for app in apps if app != OWN_APP), next(iter(apps), None))
    of_app = [metric for metric in everything if metric.app == app]
    metric_names = sorted({metric.name for metric in of_app})
    name = selection.metric or _first_counter(of_app) or next(iter(metric_names), None)
    types = {metric.type for metric in of_app if metric.name == name}
    chosen = _history(reader, name, types, app=app, selection=selection, now_ms=now_ms) if name and types else []
    as_of_ms = max((metric.changed_ms for metric in everything), default=None)
    until = max(until_ms or 0, as_of_ms or 0)
    start_ms = now_ms - selection.range_s * 1000
    return SumsView(
        apps=tuple(apps),
        app=app,
        names=tuple(metric_names),
        metric=name,
        chosen=tuple(chosen),
        over_time=_draw([metric.value for metric in chosen], start_ms, until),
        instances=_draw([metric.line("instances") for metric in chosen], start_ms, until),
        rows=tuple(sums.rows(of_app)),
        left_out=max(0, len(names) - MAX_MEASUREMENTS),
        as_of_ms=as_of_ms,
        until_ms=until,
    )


def _first_counter(found: list[sums.Metric]) -> str | None:
    """Return what to begin with: a counter says the most about an app."""
    return min((metric.name for metric in found if metric.type == "counter"), default=None)


def _last_rounds(reader: PointReader, before_ms: int) -> list[Series]:
    """Return the last lag there is before the period: what the newest rounds said, within a minute and a half."""
    last = reader.read(LAG, ("end",), start_ms=before_ms, end_ms=before_ms + 1, last_before=True)
    newest = max((series.times_ms[-1] for series in last), default=0)
    return reader.read(LAG, lags.FIELDS, start_ms=newest - lags.CARRY_MS, end_ms=newest + 1)


def _newest(reader: PointReader, name: str, at_ms: int) -> list[Series]:
    """Return the newest value of each field of a measurement's sums."""
    found = reader.read(name, sums.ALWAYS, start_ms=at_ms, end_ms=at_ms + 1, last_before=True)
    rest = [
        field for field in sums.fields(one.tags.get("metric_type", "") for one in found) if field not in sums.ALWAYS
    ]
    return [*found, *reader.read(name, rest, start_ms=at_ms, end_ms=at_ms + 1, last_before=True)]


def _history(
    reader: PointReader, name: str, types: set[str], *, app: str | None, selection: Selection, now_ms: int
) -> list[sums.Metric]:
    found = reader.read(
        name,
        sums.fields(types),
        start_ms=now_ms - selection.range_s * 1000,
        end_ms=now_ms + AHEAD_MS,
        tags={"app": app or ""},
        last_before=True,
    )
    return sorted(sums.metrics(found), key=lambda metric: -(metric.value.last or 0))


def _draw(lines: list[Line], start_ms: int, until_ms: int | None) -> Drawn:
    clipped = (
        clip(line, start_ms, max(start_ms, until_ms or (line.times_ms[-1] if line.times_ms else 0)))
        for line in lines[:MAX_LINES]
    )
    return Drawn(tuple(thin(line) for line in clipped if line.times_ms), max(0, len(lines) - MAX_LINES))
