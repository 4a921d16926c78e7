"""InfluxQL for the panels. Grafana sets the time range and the interval.

InfluxQL reads nothing before the selected time: a sum that did not change in it has no line, and a series starts with
its first point in it. A subquery of several series must not fill: InfluxDB fills once more at each transition between
two series, which makes the sums wrong, and its time grows with the square of the time range.
"""

from __future__ import annotations


def _not_starting_with(prefix: str) -> str:
    first, rest = prefix[0], prefix[1:]
    return f"([^{first}].*|{first}{_not_starting_with(rest)})?" if rest else f"([^{first}].*)?"


ALL = _not_starting_with("instance:")
"""A regular expression for every name that does not start with `instance:`, without a lookahead, which Go lacks."""

APP = '"app" =~ /^${app:regex}$/'
SUMS = "/^${metric:regex}$/"
"""The selected metrics. They are sums only: the variable does not offer the names of single instances' values."""

_INTERNAL = "\"app\" = 'tallystream'"


def line(source: str, field: str, *, where: str = "", labels: tuple[str, ...] = (), fn: str = "max") -> str:
    """Return lines over time: in each interval, `fn` of the points with the same labels."""
    return (
        f'SELECT {fn}("{field}") AS "value" FROM {source} WHERE $timeFilter{_and(where)} '
        f"GROUP BY time($__interval){_labels(labels)} fill(none)"
    )


def newest(source: str, field: str = "count", *, where: str = "", labels: tuple[str, ...], fn: str = "sum") -> str:
    """Return `fn` of the newest points of the series with the same labels."""
    return (
        f'SELECT {fn}("last") AS "{fn}" FROM (SELECT last("{field}") AS "last" FROM {source} '
        f"WHERE $timeFilter{_and(where)} GROUP BY *) WHERE $timeFilter GROUP BY {_labels(labels).removeprefix(', ')}"
    )


def series(source: str, field: str = "count", *, where: str = "") -> str:
    """Return a line for each series; a point holds until the next one."""
    return (
        f'SELECT last("{field}") AS "sum" FROM {source} WHERE $timeFilter{_and(where)} '
        "GROUP BY time($__interval), * fill(previous)"
    )


def rate(
    source: str, field: str = "count", *, where: str = "", labels: tuple[str, ...], non_negative: bool = False
) -> str:
    """Return the growth per second, in each interval, of the sum over the series with the same labels."""
    difference = "non_negative_difference" if non_negative else "difference"
    return (
        f'SELECT sum("added") * 1000 / $__interval_ms AS "rate" FROM (SELECT {difference}(last("{field}")) AS "added" '
        f"FROM {source} WHERE $timeFilter{_and(where)} GROUP BY time($__interval), * fill(none)) "
        f"WHERE $timeFilter GROUP BY time($__interval){_labels(labels)} fill(0)"
    )


def internal_metric(name: str) -> str:
    """Return an internal metric over time, by command."""
    return line(f'"{name}"', "max", where=_INTERNAL, labels=("command",))


def internal_rate(name: str, field: str) -> str:
    """Return the growth per second of an internal metric, by command."""
    return rate(f'"{name}"', field, where=_INTERNAL, labels=("command",))


def _and(where: str) -> str:
    return f" AND {where}" if where else ""


def _labels(labels: tuple[str, ...]) -> str:
    return "".join(f', "{label}"' for label in labels if label != "_measurement")
