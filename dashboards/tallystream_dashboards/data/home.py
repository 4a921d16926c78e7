"""The apps in one line each: instances, the main sum, the slowest timer, the lag, records lost and processed twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallystream_aggregator.health.internal_metrics import APP as OWN_APP
from tallystream_dashboards.data import sums
from tallystream_dashboards.data.bounds import total
from tallystream_dashboards.data.compare_reading import read_consumers
from tallystream_dashboards.data.lines import Line, Period
from tallystream_dashboards.data.sides import taken_of
from tallystream_dashboards.lag.reader import read_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.bounds import Bounds
    from tallystream_dashboards.data.compare import Comparison
    from tallystream_dashboards.data.observed import AppInstances
    from tallystream_dashboards.data.stored import Stored

MAIN_TYPES = ("counter", "float_counter", "meter", "timer", "histogram")
"""The types of a main sum, the first ones first."""


@dataclass(frozen=True, slots=True)
class AppLine:
    """An app at a moment.

    `main` is its fastest count, and `trend` its rate over the period. `slowest` is the timer with the highest p99.
    `lag` is that of the consumer group that is furthest behind on the topics of the app's positions. `lost`
    and `twice` are the records that its counters with positions missed and processed twice. None: not known.
    """

    name: str
    instances: AppInstances | None
    main: sums.Metric | None
    trend: Line
    slowest: sums.Metric | None
    lag: int | None
    lost: Bounds | None
    twice: Bounds | None


@dataclass(frozen=True, slots=True)
class Home:
    """The apps by name, with their rates at `at_ms`, epoch ms, and of how many metrics nothing is read.

    What was lost and twice is of the moment of `stored`.
    """

    apps: tuple[AppLine, ...]
    at_ms: int
    stored: Stored
    left_out: int = 0


def read_home(reader: PointReader, apps: Sequence[AppInstances], period: Period, *, round_ms: int | None) -> Home:
    """Return a line for each app, with the sums of one reading.

    A sum is written when it changes. So rates are those at `round_ms`, the time of the collector's newest round, or at
    the time of the newest sum if that is later.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    read, left_out = sums.read_all(reader, period)
    # What was taken before the work is no sum of its own.
    bounds = {taken_of(metric.name) for metric in read}
    metrics = [metric for metric in read if metric.name not in bounds]
    at_ms = max(round_ms or 0, *(metric.changed_ms for metric in metrics), 0)
    of_app: dict[str, list[sums.Metric]] = {app.name: [] for app in apps}
    for metric in metrics:
        if metric.app != OWN_APP:
            of_app.setdefault(metric.app, []).append(metric)
    lags = {} if round_ms is None else _lags(reader, at_ms=round_ms)
    by_name = {app.name: app for app in apps}
    stored, consumers = read_consumers(reader, period.end_ms)
    compared: dict[str, list[Comparison]] = {}
    for key, one in consumers.items():
        compared.setdefault(key.app, []).append(one.compared)
    lines = [
        _line(app, by_name.get(app), own, lags, compared=compared.get(app, []), at_ms=at_ms)
        for app, own in sorted(of_app.items())
    ]
    trends = tuple(_with_trend(reader, line, period, at_ms=at_ms) for line in lines)
    return Home(trends, at_ms, stored, left_out)


def _line(
    name: str,
    instances: AppInstances | None,
    metrics: Sequence[sums.Metric],
    lags: dict[str, dict[str, int]],
    *,
    compared: Sequence[Comparison],
    at_ms: int,
) -> AppLine:
    timers = [one for one in metrics if one.type == "timer" and one.percentile("p99") is not None]
    topics = {value for one in metrics if one.type == "position" for key, value in one.tags if key == "topic"}
    of_groups = [sum(by_topic[topic] for topic in topics & by_topic.keys()) for by_topic in lags.values()]
    return AppLine(
        name,
        instances,
        _main(metrics, at_ms),
        Line(name),
        max(timers, key=lambda one: one.percentile("p99") or 0, default=None),
        max(of_groups, default=None) if topics else None,
        total([one.lost for one in compared]) if compared else None,
        total([one.processed_twice for one in compared]) if compared else None,
    )


def _with_trend(reader: PointReader, line: AppLine, period: Period, *, at_ms: int) -> AppLine:
    """Return the line with the rate of its main sum over the period. Of all other sums only a minute is read."""
    main = line.main
    if main is None:
        return line
    tags = {**dict(main.tags), "app": main.app, "metric_type": main.type}
    fields = (sums.VALUE_FIELD.get(main.type, "sum"),)
    # The first rate of the period is that of the minute before it.
    start_ms = period.start_ms - sums.RATE_MS
    series = reader.read(main.name, fields, start_ms=start_ms, end_ms=period.until_ms, tags=tags, last_before=True)
    first = next(iter(sums.with_totals(sums.metrics(series))), main)
    return replace(line, trend=first.rates(period.start_ms, min(period.end_ms, at_ms)))


def _main(metrics: Iterable[sums.Metric], at_ms: int) -> sums.Metric | None:
    """Return the sum that stands for an app: of its own counts the fastest one, then the largest one."""
    counts = [one for one in metrics if one.type in MAIN_TYPES and not one.of_reporter]
    return min(
        sums.with_totals(counts),
        key=lambda one: (MAIN_TYPES.index(one.type), -(one.rate(at_ms) or 0), -(one.value.last or 0), one.name),
        default=None,
    )


def _lags(reader: PointReader, *, at_ms: int) -> dict[str, dict[str, int]]:
    """Return the lag of each group by topic, where it is known."""
    lags: dict[str, dict[str, int]] = {}
    for group, partitions in read_partitions(reader, at_ms=at_ms, fields=("lag", "stale")).items():
        for one in partitions:
            if one.lag is not None:
                of_group = lags.setdefault(group, {})
                of_group[one.topic] = of_group.get(one.topic, 0) + one.lag
    return lags
