"""The queries of the alert rules in Flux: each returns a number for each set of labels.

A rule is evaluated without a dashboard, so times are relative to now, and there are no variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.influxdb.flux import literal
from tallystream_dashboards.grafana.queries.flux import columns, pipe

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

SHIPPER = "tallystream-shipper"
"""The end of the name of the shipper's consumer group; a prefix may precede it."""
BAD_STATUSES = "ERR|STOP|STALL|REWIND"
"""The statuses of a partition for which the status of its group is ERR."""
PERIODS = 36
"""After this many periods the alert of a sum that stopped ends."""


def queries(settings: Settings) -> dict[str, str]:
    """Return the query of every rule by slug; its result has `_time`, a float `_value`, and the rule's labels."""
    start = f"from(bucket: {literal(settings.bucket)})"
    limits = settings.thresholds
    return {
        "instance-silent": _instance_silent(start),
        "sum-stopped": _sum_stopped(start, limits.stopped_minutes),
        "lag-status": _lag_status(start),
        "lag-seconds": _lag_seconds(start),
        "sink-behind": _lag_seconds(start, f" and r.group =~ /{SHIPPER}$/"),
        "dead-letters": _dead_letters(start),
        "processed-twice": _processed_twice(start),
        "aggregator-down": _age(
            start, 'r._measurement == "tallystream.input.records" and r.command == "aggregate" and r._field == "count"'
        ),
        "collector-down": _age(start, 'r._measurement == "tallystream.lag.rounds" and r._field == "groups"'),
        "clock-skew": _clock_skew(start),
    }


def _from(start: str, back: str, where: str, *steps: str) -> str:
    return pipe(f"{start}\n  |> range(start: -{back})\n  |> filter(fn: (r) => {where})", *steps)


def _now(value: str) -> str:
    """Return the step that makes a result of a value, at the present time."""
    return f"map(fn: (r) => ({{r with _time: now(), _value: {value}}}))"


def _changes(start: str, back: str, where: str, *steps: str) -> str:
    """Return the points since `back`, piped through the steps, and the newest point before, which held at its start."""
    before = pipe(f"{start}\n  |> range(start: -30d, stop: -{back})", f"filter(fn: (r) => {where})", "last()")
    during = _from(start, back, where, *steps)
    return (
        f"before = {before}\n\nduring = {during}\n\n"
        'union(tables: [before, during])\n  |> drop(columns: ["_start", "_stop"])\n  |> sort(columns: ["_time"])'
    )


def _instance_silent(start: str) -> str:
    """Return the maximum of living instances in the last hour minus the present number, by app."""
    where = 'r._field == "instances" and exists r.metric_type and r.app != "tallystream"'
    steps = (f"keep(columns: {columns('_value', 'app')})", 'group(columns: ["app"])', "max()")
    newest = pipe(_from(start, "30d", where, "last()"), *steps)
    changes = _changes(start, "1h", where, "max()")
    head, _, union = changes.rpartition("\n\n")
    return f"{head}\n\nmost = {pipe(union, *steps)}\n\nnewest = {newest}\n\n" + pipe(
        'join(tables: {most: most, newest: newest}, on: ["app"])',
        _now("float(v: r._value_most - r._value_newest)"),
        f"keep(columns: {columns('_time', '_value', 'app')})",
    )


def _sum_stopped(start: str, minutes: int) -> str:
    """Return 1 for a sum whose last growth was in five consecutive periods before the newest one, else 0."""
    where = (
        'r._field == "count" and r.metric_type =~ /^(counter|meter)$/ and r.app != "tallystream" and '
        "r._measurement !~ /^instance:/"
    )
    age = f"(int(v: now()) - int(v: r._time)) / int(v: {minutes}m)"
    return pipe(
        _changes(
            start,
            f"{PERIODS * minutes}m",
            where,
            f"aggregateWindow(every: {12 * minutes}s, fn: last, createEmpty: false)",
        ),
        "difference()",
        "filter(fn: (r) => r._value > 0)",
        f"map(fn: (r) => ({{app: r.app, metric: r._measurement, period: {age}}}))",
        f"group(columns: {columns('app', 'metric')})",
        'unique(column: "period")',
        'sort(columns: ["period"])',
        "limit(n: 5)",
        "reduce(identity: {n: 0, newest: 0, oldest: 0}, fn: (r, accumulator) => ({n: accumulator.n + 1, "
        "newest: if accumulator.n == 0 then r.period else accumulator.newest, oldest: r.period}))",
        _now("if r.n == 5 and r.oldest == r.newest + 4 and r.newest > 0 then 1.0 else 0.0"),
        f"keep(columns: {columns('_time', '_value', 'app', 'metric')})",
    )


def _lag_status(start: str) -> str:
    """Return the number of partitions of a group with each bad status."""
    return _from(
        start,
        "3m",
        'r._measurement == "tallystream.lag" and r._field == "status"',
        "last()",
        f"filter(fn: (r) => r._value =~ /^({BAD_STATUSES})$/)",
        'rename(columns: {_value: "status"})',
        f"keep(columns: {columns('group', 'status', 'partition')})",
        f"group(columns: {columns('group', 'status')})",
        'count(column: "partition")',
        _now("float(v: r.partition)"),
        'drop(columns: ["partition"])',
    )


def _lag_seconds(start: str, where: str = "") -> str:
    """Return the age of the oldest unconsumed record of each group, as last measured by the collector."""
    return _from(
        start,
        "3m",
        f'r._measurement == "tallystream.lag.groups" and r._field == "seconds"{where}',
        "last()",
        _now("r._value"),
        f"keep(columns: {columns('_time', '_value', 'group')})",
    )


def _clock_skew(start: str) -> str:
    """Return the maximum clock skew of the partitions that each group reads, in seconds and in either direction."""
    return _from(
        start,
        "3m",
        'r._measurement == "tallystream.lag" and r._field == "skew_ms"',
        "last()",
        _now("float(v: if r._value < 0 then -r._value else r._value) / 1000.0"),
        f"keep(columns: {columns('_time', '_value', 'group')})",
        'group(columns: ["group"])',
        "max()",
    )


def _dead_letters(start: str) -> str:
    """Return the growth of the table's count of dead letters in ten minutes."""
    return pipe(
        _changes(
            start,
            "10m",
            'r._measurement == "tallystream.table.dead_letters" and r._field == "max" and r.app == "tallystream"',
        ),
        "difference()",
        "group()",
        "sum()",
        _now("float(v: r._value)"),
    )


def _processed_twice(start: str) -> str:
    """Return the count minus the covered offsets of each counter that has positions."""
    where = (
        '(r.metric_type == "counter" and r._field == "count") or '
        '(r.metric_type == "position" and (r._field == "position" or r._field == "start"))'
    )
    return 'import "strings"\n\n' + _from(
        start,
        "30d",
        where,
        "filter(fn: (r) => r._measurement !~ /^instance:/)",
        "last()",
        'map(fn: (r) => ({app: r.app, metric: strings.trimSuffix(v: r._measurement, suffix: ".position"), '
        'positions: if r._field == "position" then 1 else 0, '
        'value: if r._field == "position" then -r._value else r._value}))',
        f"group(columns: {columns('app', 'metric')})",
        "reduce(identity: {positions: 0, value: 0}, fn: (r, accumulator) => ({positions: accumulator.positions + "
        "r.positions, value: accumulator.value + r.value}))",
        "filter(fn: (r) => r.positions > 0)",
        _now("float(v: r.value)"),
        'keep(columns: ["_time", "_value", "app", "metric"])',
    )


def _age(start: str, where: str) -> str:
    """Return the seconds since the newest point of the last day."""
    return _from(
        start,
        "1d",
        where,
        "group()",
        'sort(columns: ["_time"])',
        "last()",
        "map(fn: (r) => ({_value: float(v: int(v: now()) - int(v: r._time)) / 1000000000.0, _time: now()}))",
    )
