"""PromQL for the panels: sums as the shipper exposes them, and the internal metrics of docs/health.md.

A sum has the label `metric_type`; the internal metrics of the aggregator's and the shipper's own /metrics have not,
which tells them from the same metrics as sums of the app tallystream. In InfluxDB the internal metrics are what both
report to the topic `metrics` (not with --no-own-metrics).
"""

from __future__ import annotations

from tallystream_aggregator.health.internal_metrics import BY_NAME
from tallystream_dashboards.grafana.model.query import Queries, Query
from tallystream_dashboards.grafana.queries import flux, influxql

APP = 'app=~"$app"'
COUNTED = 'metric_type=~"counter|meter|histogram|timer"'
RATE = "[$__rate_interval]"

COUNTS = f'{{__name__=~"($metric)(_total|_count)",{APP},{COUNTED}}}'
"""Counts of the chosen metrics and apps."""


def named(selector: str) -> str:
    """Return what is selected with its name as the label `metric`, which functions and sums would drop."""
    return f'label_replace({selector},"metric","$1","__name__","(.+?)(_total|_count)?")'


def own(name: str, *, labels: tuple[str, ...] = ("command",)) -> str:
    """Return a figure of the aggregator's or the shipper's own."""
    return f'max by ({", ".join(labels)}) ({name}{{metric_type=""}})'


def own_rate(name: str, *, labels: tuple[str, ...] = ("command",)) -> str:
    """Return how fast a count of the aggregator's or the shipper's own grows, per second."""
    return f'sum by ({", ".join(labels)}) (rate({name}{{metric_type=""}}{RATE}))'


def figures(*names: str, legend: str = "", fn: str = "max") -> Queries:
    """Return figures over time, each by the command that it is of; a name is that of docs/health.md.

    A KeyError: there is no such figure.
    """
    found = [BY_NAME[f"tallystream.{name}"] for name in names]
    called = {one.name: legend or f"{one.name.removeprefix('tallystream.')} ({{command}})" for one in found}
    return {
        "flux": tuple(Query(flux.own(one.name, fn=fn), legend=called[one.name]) for one in found),
        "influxql": tuple(Query(influxql.own(one.name), legend=called[one.name]) for one in found),
        "prometheus": tuple(Query(own(one.exposed), legend=called[one.name]) for one in found),
    }


def rates(*names: str) -> Queries:
    """Return how fast counts grow, per second; totals are gauges on the topic, so they are read as such."""
    found = [BY_NAME[f"tallystream.{name}"] for name in names]
    called = {one.name: f"{one.name.removeprefix('tallystream.')} ({{command}})" for one in found}
    field = {one.name: "max" if one.kind == "total" else "count" for one in found}
    return {
        "flux": tuple(Query(flux.own_rate(one.name, field=field[one.name]), legend=called[one.name]) for one in found),
        "influxql": tuple(
            Query(influxql.own_rate(one.name, field=field[one.name]), legend=called[one.name]) for one in found
        ),
        "prometheus": tuple(Query(own_rate(one.exposed), legend=called[one.name]) for one in found),
    }
