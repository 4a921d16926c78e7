"""Processed twice: a counter less the offsets that its positions cover. The formula is that of docs/metrics.md.

The counter NAME and the positions NAME.position are set together, so their newest points are of one moment. InfluxQL
cannot compute across measurements.
"""

from __future__ import annotations

from tallystream_dashboards.grafana.queries import flux, promql

_COVERED = r'(r._measurement =~ /^${metric:regex}\.position$/ and (r._field == "position" or r._field == "start"))'
_COUNTED = '(r._measurement =~ /^${metric:regex}$/ and r.metric_type == "counter" and r._field == "count")'

FLUX = 'import "join"\n' + flux.total(
    f"({_COUNTED} or {_COVERED}) and {flux.APP}",
    "join.inner(right: covered, on: (l, r) => l.app == r.app, as: (l, r) => ({l with app: r.app}))",
    labels=("app",),
    change='map(fn: (r) => ({r with _value: if r._field == "position" then -r._value else r._value}))',
    also="covered = "
    + flux.piped(
        f"{flux.FROM}\n  |> range(start: date.sub(d: {flux.BACK}, from: v.timeRangeStop), stop: v.timeRangeStop)",
        f'filter(fn: (r) => {_COVERED} and {flux.APP} and r._field == "position")',
        "last()",
        'keep(columns: ["app"])',
        'group(columns: ["app"])',
        'distinct(column: "app")',
    ),
)
"""Over time, by app; apps without positions of the counter are left out."""

PROMETHEUS = (
    f'sum by (app) ({{__name__=~"($metric)_total",{promql.APP},metric_type="counter"}}) '
    f'- sum by (app) ({{__name__=~"($metric)_position_total",{promql.APP}}}) '
    f'+ sum by (app) ({{__name__=~"($metric)_position_start",{promql.APP}}})'
)
