"""Queries of the pipeline that compare two figures: a batch's time by phase, and what is still to be read."""

from __future__ import annotations

from tallystream_dashboards.grafana.queries import flux, promql

_DURATION = (
    'r._measurement == "tallystream.batch.duration" and r.app == "tallystream" and '
    '(r._field == "sum" or r._field == "count")'
)
_BY = ("command", "phase")

FLUX = flux.piped(
    flux.during(_DURATION),
    "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
    "toFloat()",
    f"keep(columns: {flux.by('_time', '_value', '_field', *_BY)})",
    'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")',
    f"group(columns: {flux.by(*_BY)})",
    'sort(columns: ["_time"])',
    'difference(columns: ["sum", "count"])',
    "filter(fn: (r) => r.count > 0.0)",
    "map(fn: (r) => ({r with _value: r.sum / r.count}))",
    f"keep(columns: {flux.by('_time', '_value', *_BY)})",
)
"""The mean of each window, by command and phase: what was added to the sum by what was added to the count."""

INFLUXQL = (
    'SELECT difference(last("sum")) / difference(last("count")) AS "mean" FROM "tallystream.batch.duration" '
    'WHERE $timeFilter AND "app" = \'tallystream\' GROUP BY time($__interval), "command", "phase" fill(none)'
)

_SUM, _COUNT = (
    f'tallystream_batch_duration_seconds_{end}{{metric_type=""}}[$__rate_interval]' for end in ("sum", "count")
)
PROMETHEUS = f"sum by (command, phase) (rate({_SUM})) / sum by (command, phase) (rate({_COUNT}))"

_PLACE = ("command", "topic", "partition")

BEHIND_FLUX = flux.piped(
    flux.during(
        '(r._measurement == "tallystream.end_offset" or r._measurement == "tallystream.offset") and '
        'r._field == "max" and r.app == "tallystream"'
    ),
    "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
    f"keep(columns: {flux.by('_time', '_value', '_measurement', *_PLACE)})",
    'pivot(rowKey: ["_time"], columnKey: ["_measurement"], valueColumn: "_value")',
    'filter(fn: (r) => exists r["tallystream.end_offset"] and exists r["tallystream.offset"])',
    'map(fn: (r) => ({r with _value: r["tallystream.end_offset"] - r["tallystream.offset"]}))',
    f"keep(columns: {flux.by('_time', '_value', *_PLACE)})",
    f"group(columns: {flux.by(*_PLACE)})",
    'sort(columns: ["_time"])',
)
BEHIND_PROMETHEUS = (
    f"{promql.own('tallystream_end_offset', labels=_PLACE)} - {promql.own('tallystream_offset', labels=_PLACE)}"
)
