"""The data of the view of metrics, for one refresh."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallystream_aggregator.health.internal_metrics import APP as OWN_APP
from tallystream_aggregator.sinks.base import EVENTS
from tallystream_dashboards.data import sums
from tallystream_dashboards.data.instances import by_instance, read_values
from tallystream_dashboards.data.lines import ChartData, Line, chart_data, fitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.lines import Period
    from tallystream_dashboards.data.observed import AppInstances
    from tallystream_dashboards.page.url_state import Selection

MAX_EVENTS = 50
"""How many events a chart is annotated with, the newest ones."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, with its time in epoch ms, which annotates a chart."""

    ts_ms: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class MetricsView:
    """The data of the view of metrics.

    `app` and `metric` are the chosen ones or the defaults; None: there is none. `by_instance` has the values of single
    instances, if the shipper writes them; `of_app` are the numbers of the app's instances; `own_metrics` are those of
    the reporters. Sums are valid until `until_ms`.
    `chosen` begins with the total over tags, if there are several sums; `metrics` has the same sums at the same moment.
    The percentiles are those of the first of `chosen` that has some.
    """

    apps: tuple[str, ...]
    app: str | None
    names: tuple[str, ...]
    metric: str | None
    chosen: tuple[sums.Metric, ...]
    over_time: ChartData
    rates: ChartData
    percentiles: ChartData
    instances: ChartData
    metrics: tuple[sums.Metric, ...]
    own_metrics: tuple[sums.Metric, ...]
    of_app: AppInstances | None
    by_instance: ChartData
    events: tuple[Event, ...]
    left_out: int
    as_of_ms: int | None
    until_ms: int


def read_metrics(
    reader: PointReader,
    selection: Selection,
    period: Period,
    apps_now: Sequence[AppInstances] = (),
    *,
    round_ms: int | None,
) -> MetricsView:
    """Read the newest value of every sum, and the chosen metric over the period.

    `apps_now` has the instances of each app.
    A sum is written when it changes, so its last value is drawn until `round_ms`, the time of the collector's newest
    round, or the time of the newest sum if that is later.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    metrics, left_out = sums.read_all(reader, period)
    apps = sorted({metric.app for metric in metrics})
    # The aggregator's own metrics are not the default.
    app = selection.app or min(apps, key=lambda app: (app == OWN_APP, app), default=None)
    of_app = [metric for metric in metrics if metric.app == app]
    metric_names = sorted({metric.name for metric in of_app})
    name = selection.metric or _default(of_app)
    types = {metric.type for metric in of_app if metric.name == name}
    read = _history(reader, name, types, app, period) if name and types else []
    # They are newer than those that were read before, so the table has them, too.
    of_app = [*(one for one in of_app if one.name != name), *read]
    of_app.sort(key=lambda one: (one.name, one.tags, one.type))
    chosen = sums.with_totals(read)
    as_of_ms = max((metric.changed_ms for metric in (*metrics, *read)), default=None)
    until_ms = max(round_ms or 0, as_of_ms or 0)
    start_ms, end_ms, _ = period
    over_time, rates, percentiles, living, of_instances = fitted(
        chart_data(_lines(chosen, "value"), start_ms, end_ms, until_ms=until_ms),
        chart_data([one.rates(start_ms, min(end_ms, until_ms)) for one in chosen], start_ms, end_ms),
        chart_data(_percentiles(chosen), start_ms, end_ms, until_ms=until_ms),
        chart_data(_lines(chosen, "instances"), start_ms, end_ms, until_ms=until_ms),
        _by_instance(reader, name, app, period),
    )
    return MetricsView(
        apps=tuple(apps),
        app=app,
        names=tuple(metric_names),
        metric=name,
        chosen=tuple(chosen),
        over_time=over_time,
        rates=rates,
        percentiles=percentiles,
        instances=living,
        metrics=tuple(one for one in of_app if not one.of_reporter),
        own_metrics=tuple(one for one in of_app if one.of_reporter),
        of_app=next((one for one in apps_now if one.name == app), None),
        by_instance=of_instances,
        events=_events(reader, app, period),
        left_out=left_out,
        as_of_ms=as_of_ms,
        until_ms=until_ms,
    )


def _lines(chosen: Sequence[sums.Metric], field: str) -> list[Line]:
    """Return the values or a field over time. Of metrics that differ only in the type, the label has the type."""
    labels = Counter(metric.label for metric in chosen)
    lines = [metric.value if field == "value" else metric.line(field) for metric in chosen]
    return [
        line if labels[line.label] == 1 else replace(line, label=f"{line.label} ({metric.type})")
        for metric, line in zip(chosen, lines, strict=True)
    ]


def _percentiles(chosen: Sequence[sums.Metric]) -> list[Line]:
    lines = [[replace(one.line(name), label=name) for name in sums.PERCENTILES] for one in chosen]
    return next((of_one for of_one in lines if of_one[0].times_ms), [])


def _by_instance(reader: PointReader, name: str | None, app: str | None, period: Period) -> ChartData:
    if name is None:
        return ChartData()
    series = read_values(reader, name, app or "", period)
    # An instance's line ends at its last point.
    return chart_data(by_instance(series), period.start_ms, period.end_ms)


def _events(reader: PointReader, app: str | None, period: Period) -> tuple[Event, ...]:
    tags = {"app": app or ""}
    series = reader.read(EVENTS, ("text",), start_ms=period.start_ms, end_ms=period.until_ms, tags=tags)
    events = [
        Event(ts_ms, one.tags.get("kind", ""), str(text))
        for one in series
        for ts_ms, text in zip(one.times_ms, one.values, strict=True)
    ]
    return tuple(sorted(events, key=lambda event: event.ts_ms)[-MAX_EVENTS:])


def _default(metrics: Sequence[sums.Metric]) -> str | None:
    """Return the default metric: the application's metrics precede the reporter's own, then counters the others."""
    first = min(metrics, key=lambda one: (one.of_reporter, one.type != "counter", one.name), default=None)
    return None if first is None else first.name


def _history(reader: PointReader, name: str, types: set[str], app: str | None, period: Period) -> list[sums.Metric]:
    series = reader.read(
        name,
        sums.fields(types),
        start_ms=period.start_ms - sums.RATE_MS,
        end_ms=period.until_ms,
        tags={"app": app or ""},
        last_before=True,
    )
    return sorted(sums.metrics(series), key=lambda metric: -(metric.value.last or 0))
