"""The dashboard Overview: every sum and its rate, by metric and app."""

from __future__ import annotations

from tallystream_dashboards.grafana.dashboards import variables
from tallystream_dashboards.grafana.model.dashboard import Dashboard, Row
from tallystream_dashboards.grafana.model.panel import Panel, Query, queries
from tallystream_dashboards.grafana.queries import flux, influxql, promql

_BOTH = ("_measurement", "app")
_LEGEND = "{metric} of {app}"
_COUNT = f'{flux.SUMS} and r._field == "count"'
_GAUGE = f'{flux.SUMS} and r._field == "sum" and r.metric_type =~ /^(gauge|updown|float_counter)$/'
_GAUGE_QL = f'{influxql.APP} AND "metric_type" =~ /^(gauge|updown|float_counter)$/'
_NO_SUMS = "No sums yet: check that an application reports, and that aggregator and shipper run (see Pipeline)."
_NO_GAUGES = "No gauges of these apps: select others above, or register one with registry.gauge(name)."

_NOW = Panel(
    title="Sums now",
    kind="table",
    description="The newest absolute sum of every metric by app: everything that was ever published. Click on a metric "
    "to open its dashboard.",
    no_value=_NO_SUMS,
    unit="none",
    width=12,
    height=10,
    columns={"Sum": "none", "Living instances": "none", "Last change": "dateTimeFromNow"},
    links={"Metric": "/d/metric?var-metric=${__value.raw}&var-app=${__data.fields.App}&${__url_time_range}"},
    queries={
        "flux": (
            Query(
                flux.newest(
                    f'{flux.SUMS} and (r._field == "count" or r._field == "instances")',
                    'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")',
                    "filter(fn: (r) => exists r.count and exists r.instances)",
                    f"keep(columns: {flux.columns('_time', 'count', 'instances', *_BOTH)})",
                    f"group(columns: {flux.columns(*_BOTH)})",
                    "reduce(identity: {count: 0, instances: 0, last: time(v: 0)}, fn: (r, accumulator) => ({count: "
                    "accumulator.count + r.count, instances: if r.instances > accumulator.instances then r.instances "
                    "else accumulator.instances, last: if r._time > accumulator.last then r._time else "
                    "accumulator.last}))",
                    "group()",
                    'rename(columns: {_measurement: "Metric", app: "App", count: "Sum", instances: "Living instances", '
                    'last: "Last change"})',
                ),
                table=True,
            ),
        ),
        "influxql": (Query(influxql.newest(influxql.SUMS, where=influxql.APP, labels=_BOTH), legend=_LEGEND),),
        "prometheus": (
            Query(
                f"sum by (app, metric) ({promql.with_metric_label(promql.COUNTS)})",
                table=True,
            ),
        ),
    },
    rename={"Time": "", "app": "App", "metric": "Metric", "Value": "Sum", "Field": "Metric", "Last *": "Sum"},
)

_LIVING = Panel(
    title="Living instances",
    kind="stat",
    description="Instances by app whose last record is younger than three of their reporting intervals, for the metric "
    "that most instances have. In InfluxQL, for each metric.",
    no_value="No app has reported yet: embed the reporter and start an instance.",
    unit="none",
    width=12,
    height=10,
    queries={
        "flux": (
            Query(
                flux.newest(
                    f'{flux.APP} and r._field == "instances" and exists r.metric_type',
                    'keep(columns: ["_time", "_value", "app"])',
                    'group(columns: ["app"])',
                    "max()",
                ),
                legend="{app}",
            ),
        ),
        "influxql": (
            Query(
                influxql.newest(f"/^{influxql.ALL}$/", "instances", where=influxql.APP, labels=("app",), fn="max"),
                legend="{metric} of {app}",
            ),
        ),
        "prometheus": (Query(f"max by (app) (tallystream_living_instances{{{promql.APP}}})", legend="{app}"),),
    },
)

_RATES = Panel(
    title="Rate by metric and app",
    description="How fast each sum grows: the difference between two absolute values, divided by the seconds between "
    "them.",
    no_value=_NO_SUMS,
    unit="cps",
    width=24,
    height=9,
    step=True,
    queries=queries(
        legend=_LEGEND,
        flux=flux.total(_COUNT, flux.RATE, labels=_BOTH),
        influxql=influxql.rate(influxql.SUMS, where=influxql.APP, labels=("_measurement", "app")),
        prometheus="sum by (app, metric) "
        f"(rate({promql.with_metric_label(promql.COUNTS)}[$__rate_interval:$__interval]))",
    ),
)

_SUMS = Panel(
    title="Sum by metric and app",
    description="The absolute sums over time. A restart never decreases them. In InfluxQL, a line for each series.",
    no_value=_NO_SUMS,
    unit="short",
    queries={
        "flux": (Query(flux.total(_COUNT, labels=_BOTH), legend=_LEGEND),),
        "influxql": (Query(influxql.series(influxql.SUMS, where=influxql.APP)),),
        "prometheus": (Query(f"sum by (app, metric) ({promql.with_metric_label(promql.COUNTS)})", legend=_LEGEND),),
    },
)

_GAUGES = Panel(
    title="Gauges by metric and app",
    description="Gauges and up-down counters, summed over the living instances; in Flux and InfluxQL also float "
    "counters. In InfluxQL, a line for each series.",
    no_value=_NO_GAUGES,
    unit="short",
    queries={
        "flux": (Query(flux.total(_GAUGE, labels=_BOTH), legend=_LEGEND),),
        "influxql": (Query(influxql.series(influxql.SUMS, "sum", where=_GAUGE_QL)),),
        "prometheus": (
            Query(
                "sum by (app, metric) (label_replace("
                f'{{__name__=~"($metric)",{promql.APP},metric_type=~"gauge|updown"}},"metric","$1","__name__","(.+)"))',
                legend=_LEGEND,
            ),
        ),
    },
)

DASHBOARD = Dashboard(
    name="overview",
    title="Overview",
    description="Every sum and its rate, by metric and app.",
    variables=(variables.APP, variables.METRICS),
    rows=(Row("Now", (_NOW, _LIVING)), Row("Over time", (_RATES, _SUMS, _GAUGES))),
    events=variables.EVENTS,
)
