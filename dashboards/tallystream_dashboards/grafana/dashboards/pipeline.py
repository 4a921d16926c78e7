"""The dashboard Pipeline: the aggregator and the shipper, by their internal metrics (docs/configuration.md)."""

from __future__ import annotations

from functools import partial

from tallystream_aggregator.health.internal_metrics import BY_NAME
from tallystream_dashboards.grafana.model.dashboard import Dashboard, Row
from tallystream_dashboards.grafana.model.panel import GREEN, RED, Panel, Queries, Query, queries, value_mapping
from tallystream_dashboards.grafana.queries import flux, influxql, promql

_NO_DATA = (
    "No internal metrics: start aggregator and shipper without --no-own-metrics, for Prometheus with --http-port."
)
_NO_LAG = "No lag of the groups of aggregator and shipper: start tallystream lag collect."
_OWN_GROUPS = "tallystream-(aggregator|shipper)"

_panel = partial(Panel, no_value=_NO_DATA)
_stat = partial(_panel, kind="stat", width=6, height=5)


def _internal_metrics(*names: str, legend: str = "") -> Queries:
    """Return the queries of internal metrics over time, by command; the names are those of docs/configuration.md."""
    metrics = [(BY_NAME[f"tallystream.{name}"], legend or f"{name} ({{command}})") for name in names]
    return {
        "flux": tuple(Query(flux.internal_metric(metric.name), text) for metric, text in metrics),
        "influxql": tuple(Query(influxql.internal_metric(metric.name), text) for metric, text in metrics),
        "prometheus": tuple(Query(promql.internal_metric(metric.exposed), text) for metric, text in metrics),
    }


def _internal_rates(*names: str) -> Queries:
    """Return the queries of the growth of internal metrics, per second and by command."""
    metrics = [(BY_NAME[f"tallystream.{name}"], f"{name} ({{command}})") for name in names]
    # Totals are gauges on the topic.
    fields = {metric.name: "max" if metric.kind == "total" else "count" for metric, _ in metrics}
    return {
        "flux": tuple(
            Query(flux.internal_rate(metric.name, fields[metric.name]), legend) for metric, legend in metrics
        ),
        "influxql": tuple(
            Query(influxql.internal_rate(metric.name, fields[metric.name]), legend) for metric, legend in metrics
        ),
        "prometheus": tuple(Query(promql.internal_rate(metric.exposed), legend) for metric, legend in metrics),
    }


_READY = _stat(
    title="Ready",
    description="Whether aggregator and shipper work, as /readyz reports it.",
    unit="none",
    mappings=(value_mapping({"1": ("ready", GREEN), "0": ("not ready", RED)}),),
    queries=_internal_metrics("ready", legend="{command}"),
)
_PUBLISHED = _stat(
    title="Age of what is published",
    description="The time since the aggregator last published a step, 0 while nothing waits to be read.",
    unit="s",
    queries=_internal_metrics("published_age_seconds", legend="{command}"),
)
_STORE = _stat(
    title="Store",
    description="Whether the shipper reaches its store. While the store is unavailable, points wait on Kafka.",
    unit="none",
    mappings=(value_mapping({"1": ("unavailable", RED), "0": ("available", GREEN)}),),
    queries=_internal_metrics("ship.store_unavailable", legend="{command}"),
)
_GENERATION = _stat(
    title="Generation",
    description="It rises with each start of the aggregator's query, and when another aggregator takes over.",
    unit="none",
    queries=_internal_metrics("generation", legend="{command}"),
)
_AGE = Panel(
    title="Age of what is not in the store",
    description="The age in seconds of the oldest record that the aggregator has not summed, and of the oldest sum "
    "that the shipper has not written.",
    no_value=_NO_LAG,
    unit="s",
    queries=queries(
        legend="{group}",
        flux=flux.line(
            f'r._measurement == "tallystream.lag.groups" and r.group =~ /{_OWN_GROUPS}$/ and r._field == "seconds"',
            labels=("group",),
        ),
        influxql=influxql.line(
            '"tallystream.lag.groups"', "seconds", where=f'"group" =~ /{_OWN_GROUPS}$/', labels=("group",)
        ),
        prometheus=f'max by (group) (kafka_consumergroup_group_max_lag_seconds{{group=~".*{_OWN_GROUPS}"}})',
    ),
)

_PARTITION = ("command", "topic", "partition")

_BEHIND_FLUX = flux.pipe(
    flux.selected(
        '(r._measurement == "tallystream.end_offset" or r._measurement == "tallystream.offset") and '
        'r._field == "max" and r.app == "tallystream"'
    ),
    "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
    f"keep(columns: {flux.columns('_time', '_value', '_measurement', *_PARTITION)})",
    'pivot(rowKey: ["_time"], columnKey: ["_measurement"], valueColumn: "_value")',
    'filter(fn: (r) => exists r["tallystream.end_offset"] and exists r["tallystream.offset"])',
    'map(fn: (r) => ({r with _value: r["tallystream.end_offset"] - r["tallystream.offset"]}))',
    f"keep(columns: {flux.columns('_time', '_value', *_PARTITION)})",
    f"group(columns: {flux.columns(*_PARTITION)})",
    'sort(columns: ["_time"])',
)
_END_OFFSET = promql.internal_metric("tallystream_end_offset", labels=_PARTITION)
_OFFSET = promql.internal_metric("tallystream_offset", labels=_PARTITION)

_BEHIND = _panel(
    title="Records to read",
    description="The end of each partition minus the position up to which everything is published.",
    unit="short",
    queries=queries(
        legend="{topic}/{partition} ({command})", flux=_BEHIND_FLUX, prometheus=f"{_END_OFFSET} - {_OFFSET}"
    ),
)

# The mean duration in each window: the growth of the sum divided by the growth of the count.
_DURATION = (
    'r._measurement == "tallystream.epoch.duration" and r.app == "tallystream" and '
    '(r._field == "sum" or r._field == "count")'
)
_PHASE_LABELS = ("command", "phase")

_PHASES_FLUX = flux.pipe(
    flux.selected(_DURATION),
    "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
    "toFloat()",
    f"keep(columns: {flux.columns('_time', '_value', '_field', *_PHASE_LABELS)})",
    'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")',
    f"group(columns: {flux.columns(*_PHASE_LABELS)})",
    'sort(columns: ["_time"])',
    'difference(columns: ["sum", "count"])',
    "filter(fn: (r) => r.count > 0.0)",
    "map(fn: (r) => ({r with _value: r.sum / r.count}))",
    f"keep(columns: {flux.columns('_time', '_value', *_PHASE_LABELS)})",
)

_PHASES_INFLUXQL = (
    'SELECT difference(last("sum")) / difference(last("count")) AS "mean" FROM "tallystream.epoch.duration" '
    'WHERE $timeFilter AND "app" = \'tallystream\' GROUP BY time($__interval), "command", "phase" fill(none)'
)

_SUM, _COUNT = (
    f'tallystream_epoch_duration_seconds_{end}{{metric_type=""}}[$__rate_interval]' for end in ("sum", "count")
)
_PHASES_PROMETHEUS = f"sum by (command, phase) (rate({_SUM})) / sum by (command, phase) (rate({_COUNT}))"

_PHASES = _panel(
    title="Epoch phases",
    description="The mean duration of the phases of an epoch: work, and waiting for records.",
    unit="s",
    queries=queries(
        legend="{phase} ({command})", flux=_PHASES_FLUX, influxql=_PHASES_INFLUXQL, prometheus=_PHASES_PROMETHEUS
    ),
)
_READ = _panel(
    title="Records and steps a second",
    description="Records that were read, steps that the aggregator published, and its restarts after an error.",
    unit="cps",
    step=True,
    queries=_internal_rates("input.records", "steps", "restarts"),
)
_DEAD = _panel(
    title="Dead letters",
    description="Records and metrics that were rejected, and records that changed nothing (stale), per second. The "
    "topic metrics-dead has the reasons.",
    unit="cps",
    step=True,
    queries=_internal_rates("table.dead_letters", "table.stale"),
)
_TABLE = _panel(
    title="Table",
    description="Lives, living lives and their instances; metrics; and rows, one for each metric of a life.",
    unit="short",
    queries=_internal_metrics("table.lives", "table.living", "table.instances", "table.metrics", "table.rows"),
)
_STATE = _panel(
    title="State",
    description="The bytes of the table in Spark's state.",
    unit="bytes",
    queries=_internal_metrics("table.state_bytes"),
)
_POINTS = _panel(
    title="Points a second",
    description="Points that the shipper wrote, per second.",
    unit="cps",
    step=True,
    queries=_internal_rates("ship.points"),
)
_LEFT_OUT = _panel(
    title="Left out by the shipper",
    description="Points that the store rejected permanently, and unreadable records, per second.",
    unit="cps",
    step=True,
    queries=_internal_rates("ship.rejected", "ship.unreadable"),
)

DASHBOARD = Dashboard(
    name="pipeline",
    title="Pipeline",
    description="Aggregator and shipper: readiness, throughput, lag, and records that they left out.",
    variables=(),
    rows=(
        Row("Now", (_READY, _PUBLISHED, _STORE, _GENERATION)),
        Row("Keeping up", (_AGE, _BEHIND, _PHASES, _READ)),
        Row("Table", (_DEAD, _TABLE, _STATE)),
        Row("Store", (_POINTS, _LEFT_OUT)),
    ),
)
