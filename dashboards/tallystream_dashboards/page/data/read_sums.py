"""Read the data of the sums' views from the store, for one refresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_aggregator.health.internal_metrics import APP as OWN_APP
from tallystream_aggregator.shipping.points import EVENTS, is_sum
from tallystream_aggregator.sinks.base import INSTANCE_PREFIX
from tallystream_dashboards.lag.storage import ALL as LAGS
from tallystream_dashboards.page.data import sums
from tallystream_dashboards.page.data.duplicates import Duplicates, positions_of, twice
from tallystream_dashboards.page.data.instances import FIELDS, by_instance
from tallystream_dashboards.page.data.lines import Drawn, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader, Series
    from tallystream_dashboards.page.url_state import Selection

MAX_MEASUREMENTS = 500
"""How many metrics are read."""
MAX_EVENTS = 50
"""How many events a chart is annotated with, the newest ones."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, with its time in epoch ms, which annotates a chart."""

    ts_ms: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class SumsView:
    """The data of the sums' views.

    `app` and `metric` are the chosen ones or the defaults; None: there is none. `by_instance` has the values of single
    instances, if the shipper writes them; `own_rows` has the reporters' own metrics. For the view of records processed
    twice, `apps` and `names` are only those with positions, unless there are none. Sums are valid until `until_ms`.
    """

    apps: tuple[str, ...]
    app: str | None
    names: tuple[str, ...]
    metric: str | None
    chosen: tuple[sums.Metric, ...]
    over_time: Drawn
    instances: Drawn
    rows: tuple[sums.SumRow, ...]
    own_rows: tuple[sums.SumRow, ...]
    by_instance: Drawn
    events: tuple[Event, ...]
    left_out: int
    as_of_ms: int | None
    until_ms: int


def read_sums(reader: PointReader, selection: Selection, *, now_ms: int, until_ms: int | None) -> SumsView:
    """Read the newest value of every sum, and the chosen metric over the chosen period.

    A sum is written when it changes, so its last value is drawn until `until_ms`, the time of the collector's newest
    round, or the time of the newest sum if that is later.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    names = [name for name in reader.measurements() if name not in LAGS and is_sum(name)]
    latest = [
        series for name in names[:MAX_MEASUREMENTS] for series in _newest(reader, name, now_ms + selection.ahead_ms)
    ]
    everything = sums.metrics(latest)
    offered = (_with_positions(everything) if selection.view == "twice" else []) or everything
    apps = sorted({metric.app for metric in offered})
    # The aggregator's own metrics are not the default.
    app = _kept(selection.app, apps, selection) or min(apps, key=lambda app: (app == OWN_APP, app), default=None)
    of_app = [metric for metric in everything if metric.app == app]
    metric_names = sorted({metric.name for metric in offered if metric.app == app})
    name = _kept(selection.metric, metric_names, selection) or _first([one for one in offered if one.app == app])
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
        over_time=draw([metric.value for metric in chosen], start_ms, now_ms, until_ms=until),
        instances=draw([metric.line("instances") for metric in chosen], start_ms, now_ms, until_ms=until),
        rows=tuple(sums.rows(one for one in of_app if not one.of_reporter)),
        own_rows=tuple(sums.rows(one for one in of_app if one.of_reporter)),
        by_instance=_by_instance(reader, name, app=app, start_ms=start_ms, now_ms=now_ms, selection=selection),
        events=_events(reader, app, start_ms=start_ms, end_ms=now_ms + selection.ahead_ms),
        left_out=max(0, len(names) - MAX_MEASUREMENTS),
        as_of_ms=as_of_ms,
        until_ms=until,
    )


def read_duplicates(reader: PointReader, view: SumsView, selection: Selection, *, now_ms: int) -> Duplicates | None:
    """Return the records processed twice, by the chosen counter and its positions; None without either.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    counters = [metric for metric in view.chosen if metric.type == "counter"]
    if not counters:
        return None
    found = reader.read(
        positions_of(counters[0].name),
        ("start", "position"),
        start_ms=now_ms - selection.range_s * 1000,
        end_ms=now_ms + selection.ahead_ms,
        tags={"app": view.app or "", "metric_type": "position"},
        last_before=True,
    )
    positions = sums.metrics(found)
    return twice(counters, positions) if positions else None


def _by_instance(
    reader: PointReader, name: str | None, *, app: str | None, start_ms: int, now_ms: int, selection: Selection
) -> Drawn:
    if name is None:
        return Drawn()
    found = reader.read(
        INSTANCE_PREFIX + name,
        FIELDS,
        start_ms=start_ms,
        end_ms=now_ms + selection.ahead_ms,
        tags={"app": app or ""},
        last_before=True,
    )
    # An instance's line ends at its last point.
    return draw(by_instance(found), start_ms, now_ms)


def _events(reader: PointReader, app: str | None, *, start_ms: int, end_ms: int) -> tuple[Event, ...]:
    found = reader.read(EVENTS, ("text",), start_ms=start_ms, end_ms=end_ms, tags={"app": app or ""})
    events = [
        Event(ts_ms, one.tags.get("kind", ""), str(text))
        for one in found
        for ts_ms, text in zip(one.times_ms, one.values, strict=True)
    ]
    return tuple(sorted(events, key=lambda event: event.ts_ms)[-MAX_EVENTS:])


def _with_positions(found: Sequence[sums.Metric]) -> list[sums.Metric]:
    """Return the counters that have positions."""
    positions = {(metric.app, metric.name) for metric in found if metric.type == "position"}
    return [one for one in found if one.type == "counter" and (one.app, positions_of(one.name)) in positions]


def _kept(wanted: str | None, choices: Sequence[str], selection: Selection) -> str | None:
    return wanted if wanted in choices or not selection.carried else None


def _first(found: Sequence[sums.Metric]) -> str | None:
    """Return the default metric: the application's metrics precede the reporter's own, then counters the others."""
    first = min(found, key=lambda one: (one.of_reporter, one.type != "counter", one.name), default=None)
    return None if first is None else first.name


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
        end_ms=now_ms + selection.ahead_ms,
        tags={"app": app or ""},
        last_before=True,
    )
    return sorted(sums.metrics(found), key=lambda metric: -(metric.value.last or 0))
