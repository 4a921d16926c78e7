"""The figures of docs/health.md as queries: by the names of the list that makes them, so that none can be wrong.

In InfluxDB: what both report to the topic `metrics` (not with --no-own-metrics). In Prometheus: their /metrics.
"""

from __future__ import annotations

from tallystream_aggregator.health.internal_metrics import BY_NAME
from tallystream_dashboards.grafana.model.query import Queries, Query
from tallystream_dashboards.grafana.queries import flux, influxql, promql


def figures(*names: str, legend: str = "", fn: str = "max") -> Queries:
    """Return figures over time, each by the command that it is of; a name is that of docs/health.md.

    A KeyError: there is no such figure.
    """
    found = [BY_NAME[f"tallystream.{name}"] for name in names]
    called = {one.name: legend or f"{one.name.removeprefix('tallystream.')} ({{command}})" for one in found}
    return {
        "flux": tuple(Query(flux.own(one.name, fn=fn), legend=called[one.name]) for one in found),
        "influxql": tuple(Query(influxql.own(one.name), legend=called[one.name]) for one in found),
        "prometheus": tuple(Query(promql.own(one.exposed), legend=called[one.name]) for one in found),
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
        "prometheus": tuple(Query(promql.own_rate(one.exposed), legend=called[one.name]) for one in found),
    }
