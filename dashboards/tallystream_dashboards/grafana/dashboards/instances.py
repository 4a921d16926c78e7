"""The dashboard Instances: the values of each instance, if the shipper runs with --rows."""

from __future__ import annotations

from tallystream_dashboards.grafana.dashboards import variables
from tallystream_dashboards.grafana.model.dashboard import Dashboard, Row
from tallystream_dashboards.grafana.model.panel import Panel, Query, queries
from tallystream_dashboards.grafana.queries import flux, influxql

_NO_DATA = "No values of single instances: start the shipper with --rows, or select another metric or app above."
_WHERE = f"r._measurement =~ /^instance:${{metric:regex}}$/ and {flux.APP} and r.instance =~ /^${{instance:regex}}$/"
_FROM = "/^instance:${metric:regex}$/"
_WHERE_QL = f'{influxql.APP} AND "instance" =~ /^${{instance:regex}}$/'
_LABELS = ("app", "instance")
_LEGEND = "{instance} of {app}"

_NEWEST = Panel(
    title="Instances",
    kind="table",
    description="The newest values of the metric by instance. The longest silent instance comes first.",
    no_value=_NO_DATA,
    unit="none",
    width=24,
    height=9,
    columns={"Count": "none", "Value": "none", "Last record": "dateTimeFromNow"},
    queries={
        "flux": (
            Query(
                flux.newest(
                    f'{_WHERE} and (r._field == "count" or r._field == "life")',
                    'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")',
                    f"keep(columns: {flux.columns('_time', 'count', 'life', *_LABELS)})",
                    f"group(columns: {flux.columns(*_LABELS)})",
                    'sort(columns: ["_time"])',
                    'last(column: "life")',
                    "group()",
                    'sort(columns: ["_time"])',
                    'rename(columns: {app: "App", instance: "Instance", count: "Count", life: "Life", '
                    '_time: "Last record"})',
                ),
                table=True,
            ),
        ),
        "influxql": (
            Query(
                f'SELECT last("life") AS "Life", "count" AS "Count", "value" AS "Value" FROM {_FROM} '
                f'WHERE $timeFilter AND {_WHERE_QL} GROUP BY "app", "instance"',
                table=True,
            ),
        ),
    },
    rename={"Time": "Last record", "app": "App", "instance": "Instance"},
)

_COUNTS = Panel(
    title="Count by instance",
    description="The count of each life. Unlike the sum, it starts at 0 when the instance restarts.",
    no_value=_NO_DATA,
    unit="short",
    queries=queries(
        legend=_LEGEND,
        flux=flux.line(f'{_WHERE} and r._field == "count"', labels=_LABELS, fn="sum"),
        influxql=influxql.line(_FROM, "count", where=_WHERE_QL, labels=_LABELS),
    ),
)

_RATES = Panel(
    title="Rate by instance",
    description="How fast each instance counts. After a restart, the first value of the new life is skipped.",
    no_value=_NO_DATA,
    unit="cps",
    step=True,
    queries=queries(
        legend=_LEGEND,
        flux=flux.pipe(
            flux.line(f'{_WHERE} and r._field == "count"', labels=_LABELS, fn="sum"),
            "derivative(unit: 1s, nonNegative: true)",
        ),
        influxql=influxql.rate(_FROM, where=_WHERE_QL, labels=_LABELS, non_negative=True),
    ),
)

_VALUES = Panel(
    title="Value by instance",
    description="Gauges and up-down counters of each instance.",
    no_value="No gauge of this name: select a gauge or an up-down counter above.",
    unit="short",
    queries=queries(
        legend=_LEGEND,
        flux=flux.line(f'{_WHERE} and r._field == "value"', labels=_LABELS, fn="sum"),
        influxql=influxql.line(_FROM, "value", where=_WHERE_QL, labels=_LABELS),
    ),
)

_SNAPSHOTS = Panel(
    title="Snapshots by instance",
    description="The number of snapshots with the metric in each interval. A silent instance has none.",
    no_value=_NO_DATA,
    unit="none",
    queries=queries(
        legend=_LEGEND,
        flux=flux.pipe(
            flux.selected(f'{_WHERE} and r._field == "life"'),
            f"keep(columns: {flux.columns('_time', '_start', '_stop', '_value', *_LABELS)})",
            f"group(columns: {flux.columns(*_LABELS)})",
            "aggregateWindow(every: v.windowPeriod, fn: count, createEmpty: true)",
        ),
        influxql=f'SELECT count("life") AS "snapshots" FROM {_FROM} WHERE $timeFilter AND {_WHERE_QL} '
        'GROUP BY time($__interval), "app", "instance" fill(0)',
    ),
)

DASHBOARD = Dashboard(
    name="instances",
    title="Instances",
    description="The values of single instances (the shipper must run with --rows).",
    variables=(variables.APP, variables.INSTANCE_METRIC, variables.INSTANCE),
    rows=(Row("Now", (_NEWEST,)), Row("Over time", (_COUNTS, _RATES, _VALUES, _SNAPSHOTS))),
    events=variables.EVENTS,
)
