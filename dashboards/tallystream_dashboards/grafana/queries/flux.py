"""Flux for the panels. Grafana sets the time range and the window; the bucket is a variable of the dashboard.

Sums are written when they change, so the value at the start of a graph may have been written long before. The queries
therefore also read the newest point of the `LOOKBACK` before the start.
"""

from __future__ import annotations

LOOKBACK = "30d"
"""How far back the newest point of a sum is searched."""

FROM = 'from(bucket: "${bucket}")'
APP = "r.app =~ /^${app:regex}$/"
METRIC = "r._measurement =~ /^${metric:regex}$/"
SUMS = f"{METRIC} and {APP} and r._measurement !~ /^instance:/"
"""Sums of the selected metrics and apps, without the values of single instances."""

_DATE = 'import "date"\n\n'
_RANGE = "|> range(start: v.timeRangeStart, stop: v.timeRangeStop)"
_NEWEST = f"|> range(start: date.sub(d: {LOOKBACK}, from: v.timeRangeStop), stop: v.timeRangeStop)"


def selected(where: str) -> str:
    """Return the points of the selected time that match `where`."""
    return f"{FROM}\n  {_RANGE}\n  |> filter(fn: (r) => {where})"


def newest(where: str, *steps: str) -> str:
    """Return the newest point of each series up to the end of the selected time, piped through the steps."""
    return _DATE + pipe(f"{FROM}\n  {_NEWEST}\n  |> filter(fn: (r) => {where})\n  |> last()", *steps)


def pipe(source: str, *steps: str) -> str:
    """Return `source` piped through the steps."""
    return "".join([source, *(f"\n  |> {step}" for step in steps)])


def columns(*names: str) -> str:
    """Return a list of columns in Flux."""
    return "[" + ", ".join(f'"{column}"' for column in names) + "]"


def line(where: str, *, labels: tuple[str, ...], fn: str = "max") -> str:
    """Return lines over time: in each window, `fn` of the newest points of the series with the same labels."""
    if fn in ("sum", "mean"):
        return _sum_or_mean(where, labels, fn)
    return pipe(
        selected(where),
        "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
        f"keep(columns: {columns('_time', '_value', *labels)})",
        f"group(columns: {columns(*labels, '_time')})",
        f"{fn}()",
        f"group(columns: {columns(*labels)})",
        'sort(columns: ["_time"])',
        *_label_measurement(labels),
    )


def _sum_or_mean(where: str, labels: tuple[str, ...], fn: str) -> str:
    # Windows over the points in memory are ten times as fast as a table for each time, but only for sums and means.
    kept = ("_start", "_stop", *labels)
    return pipe(
        selected(where),
        'aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false, timeSrc: "_start")',
        f"keep(columns: {columns('_time', '_value', *kept)})",
        f"group(columns: {columns(*kept)})",
        f"aggregateWindow(every: v.windowPeriod, fn: {fn}, createEmpty: false)",
        'drop(columns: ["_start", "_stop"])',
        'sort(columns: ["_time"])',
        *_label_measurement(labels),
    )


def series(where: str, *, labels: tuple[str, ...]) -> str:
    """Return a line for each series, with its newest point in each window; the labels identify a series."""
    return pipe(
        selected(where),
        "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
        f"keep(columns: {columns('_time', '_value', *labels)})",
        f"group(columns: {columns(*labels)})",
    )


def total(where: str, *steps: str, labels: tuple[str, ...], map_change: str = "", definition: str = "") -> str:
    """Return the exact sum over time of the series with the same labels, whenever each of them was written.

    It adds up, window by window, every change of every series, from 0 and the value before the selected time on.
    `map_change` is a step for each change; `definition` defines what the steps need.
    """
    window = 'aggregateWindow(every: v.windowPeriod, fn: {}, createEmpty: false, timeSrc: "_start")'
    bare = 'drop(columns: ["_start", "_stop"])'
    zero = pipe(
        f"zero = {FROM}\n  |> range(start: date.sub(d: {LOOKBACK}, from: v.timeRangeStart), stop: v.timeRangeStop)",
        f"filter(fn: (r) => {where})",
        "last()",
        "map(fn: (r) => ({r with _time: date.sub(d: 2s, from: v.timeRangeStart), _value: r._value - r._value}))",
        bare,
    )
    before = pipe(
        f"before = {FROM}\n  |> range(start: date.sub(d: {LOOKBACK}, from: v.timeRangeStart), stop: v.timeRangeStart)",
        f"filter(fn: (r) => {where})",
        "last()",
        "map(fn: (r) => ({r with _time: date.sub(d: 1s, from: v.timeRangeStart)}))",
        bare,
    )
    after = pipe(f"during = {selected(where)}", window.format("last"), bare)
    summed = pipe(
        "union(tables: [zero, before, during])",
        'sort(columns: ["_time"])',
        "difference()",
        *([map_change] if map_change else []),
        f"keep(columns: {columns('_time', '_value', *labels)})",
        f"group(columns: {columns(*labels)})",
        window.format("sum"),  # over points in memory; `last` instead would take ten times as long
        'sort(columns: ["_time"])',
        "cumulativeSum()",
        bare,
        *_label_measurement(labels),
        *steps,
    )
    return _DATE + "\n\n".join([zero, before, after, *([definition] if definition else []), summed])


RATE = "derivative(unit: 1s, nonNegative: false)"
"""The difference between two absolute values, divided by the seconds between them."""


def internal_metric(name: str) -> str:
    """Return an internal metric over time, by command.

    After a restart the previous life counts as living for a moment, so this is the maximum over all lives.
    """
    return line(_internal(name, "max"), labels=("command",))


def internal_rate(name: str, field: str) -> str:
    """Return the growth per second of an internal metric, by command."""
    return total(_internal(name, field), RATE, labels=("command",))


def _internal(name: str, field: str) -> str:
    return f'r._measurement == "{name}" and r._field == "{field}" and r.app == "tallystream"'


def _label_measurement(labels: tuple[str, ...]) -> tuple[str, ...]:
    # To Grafana a column whose name starts with an underscore is no label.
    return ('rename(columns: {_measurement: "metric"})',) if "_measurement" in labels else ()
