"""Flux as the panels need it. Times and the window are Grafana's, the bucket is the dashboard's variable.

Sums are written when they change, so what holds at the beginning of a graph may have been written long before: the
newest point of the `BACK` before it is looked for, too.
"""

from __future__ import annotations

BACK = "30d"
"""How far back the newest point of a sum is looked for."""

FROM = 'from(bucket: "${bucket}")'
APP = "r.app =~ /^${app:regex}$/"
METRIC = "r._measurement =~ /^${metric:regex}$/"
SUMS = f"{METRIC} and {APP} and r._measurement !~ /^instance:/"
"""Sums of the chosen metrics and apps, without what single instances say."""

_DATE = 'import "date"\n\n'
_RANGE = "|> range(start: v.timeRangeStart, stop: v.timeRangeStop)"
_NEWEST = f"|> range(start: date.sub(d: {BACK}, from: v.timeRangeStop), stop: v.timeRangeStop)"


def during(where: str) -> str:
    """Return the points of the chosen time that `where` holds for, to be piped on."""
    return f"{FROM}\n  {_RANGE}\n  |> filter(fn: (r) => {where})"


def newest(where: str, *steps: str) -> str:
    """Return the newest point of each series at the end of the chosen time, piped through `steps`."""
    return _DATE + piped(f"{FROM}\n  {_NEWEST}\n  |> filter(fn: (r) => {where})\n  |> last()", *steps)


def piped(source: str, *steps: str) -> str:
    """Return `source` piped through the steps."""
    return "".join([source, *(f"\n  |> {step}" for step in steps)])


def by(*columns: str) -> str:
    """Return the list of columns."""
    return "[" + ", ".join(f'"{column}"' for column in columns) + "]"


def line(where: str, *, labels: tuple[str, ...], fn: str = "max") -> str:
    """Return lines over time: in each window the newest point of each series, and `fn` of those with equal labels."""
    if fn in ("sum", "mean"):
        return _added(where, labels, fn)
    return piped(
        during(where),
        "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
        f"keep(columns: {by('_time', '_value', *labels)})",
        f"group(columns: {by(*labels, '_time')})",
        f"{fn}()",
        f"group(columns: {by(*labels)})",
        'sort(columns: ["_time"])',
        *_metric(labels),
    )


def _added(where: str, labels: tuple[str, ...], fn: str) -> str:
    # Windows of what is in memory: ten times as fast as a table for each moment, but for sums and means alone.
    kept = ("_start", "_stop", *labels)
    return piped(
        during(where),
        'aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false, timeSrc: "_start")',
        f"keep(columns: {by('_time', '_value', *kept)})",
        f"group(columns: {by(*kept)})",
        f"aggregateWindow(every: v.windowPeriod, fn: {fn}, createEmpty: false)",
        'drop(columns: ["_start", "_stop"])',
        'sort(columns: ["_time"])',
        *_metric(labels),
    )


def each(where: str, *, labels: tuple[str, ...]) -> str:
    """Return lines over time of series that the labels tell apart: in each window the newest point."""
    return piped(
        during(where),
        "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
        f"keep(columns: {by('_time', '_value', *labels)})",
        f"group(columns: {by(*labels)})",
    )


def total(where: str, *steps: str, labels: tuple[str, ...], change: str = "", also: str = "") -> str:
    """Return the exact sum over the series with equal labels over time, whenever each of them was written.

    It is what held before, and then every change of every series from 0 on, added up window by window. `change` is a
    step that each change goes through; `also` defines what `steps` need.
    """
    window = 'aggregateWindow(every: v.windowPeriod, fn: {}, createEmpty: false, timeSrc: "_start")'
    bare = 'drop(columns: ["_start", "_stop"])'
    zero = piped(
        f"zero = {FROM}\n  |> range(start: date.sub(d: {BACK}, from: v.timeRangeStart), stop: v.timeRangeStop)",
        f"filter(fn: (r) => {where})",
        "last()",
        "map(fn: (r) => ({r with _time: date.sub(d: 2s, from: v.timeRangeStart), _value: r._value - r._value}))",
        bare,
    )
    before = piped(
        f"before = {FROM}\n  |> range(start: date.sub(d: {BACK}, from: v.timeRangeStart), stop: v.timeRangeStart)",
        f"filter(fn: (r) => {where})",
        "last()",
        "map(fn: (r) => ({r with _time: date.sub(d: 1s, from: v.timeRangeStart)}))",
        bare,
    )
    after = piped(f"during = {during(where)}", window.format("last"), bare)
    summed = piped(
        "union(tables: [zero, before, during])",
        'sort(columns: ["_time"])',
        "difference()",
        *([change] if change else []),
        f"keep(columns: {by('_time', '_value', *labels)})",
        f"group(columns: {by(*labels)})",
        window.format("sum"),  # of what is in memory, the newest of each window would take ten times as long
        'sort(columns: ["_time"])',
        "cumulativeSum()",
        bare,
        *_metric(labels),
        *steps,
    )
    return _DATE + "\n\n".join([zero, before, after, *([also] if also else []), summed])


RATE = "derivative(unit: 1s, nonNegative: false)"
"""The difference of two absolute values by the seconds between them."""


def own(name: str, *, field: str = "max", labels: tuple[str, ...] = ("command",), fn: str = "max") -> str:
    """Return a figure of the aggregator's or the shipper's own over time.

    Of a gauge it is the largest of the living lives: after a restart the old life still counts for a moment.
    """
    where = f'r._measurement == "{name}" and r._field == "{field}" and r.app == "tallystream"'
    return line(where, labels=labels, fn=fn)


def own_rate(name: str, *, field: str = "count") -> str:
    """Return how fast a count of the aggregator's or the shipper's own grows, per second."""
    where = f'r._measurement == "{name}" and r._field == "{field}" and r.app == "tallystream"'
    return total(where, RATE, labels=("command",))


def _metric(labels: tuple[str, ...]) -> tuple[str, ...]:
    # A column that begins with an underscore is no label to Grafana.
    return ('rename(columns: {_measurement: "metric"})',) if "_measurement" in labels else ()
