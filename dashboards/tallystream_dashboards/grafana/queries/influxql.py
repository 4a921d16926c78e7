"""InfluxQL as the panels need it. The time range and the interval are Grafana's.

InfluxQL sees nothing before the chosen time: a sum that has not changed in it is not there, and a series counts from
its first point in it. A subquery of several series must not fill: InfluxDB then fills again at each change from one
series to another, so that what is added up is wrong, and takes time by the square of what was chosen.
"""

from __future__ import annotations


def _but(prefix: str) -> str:
    first, rest = prefix[0], prefix[1:]
    return f"([^{first}].*|{first}{_but(rest)})?" if rest else f"([^{first}].*)?"


ALL = _but("instance:")
"""Every name that does not begin with `instance:`, as a regular expression without a look ahead, which Go lacks."""

APP = '"app" =~ /^${app:regex}$/'
SUMS = "/^${metric:regex}$/"
"""The chosen metrics: sums only, since names of what single instances say are not among what can be chosen."""


def line(
    source: str, field: str, *, where: str = "", labels: tuple[str, ...] = (), fn: str = "max", name: str = "value"
) -> str:
    """Return lines over time: in each interval `fn` of the points with equal labels."""
    return (
        f'SELECT {fn}("{field}") AS "{name}" FROM {source} WHERE $timeFilter{_and(where)} '
        f"GROUP BY time($__interval){_labels(labels)} fill(none)"
    )


def now(source: str, field: str = "count", *, where: str = "", labels: tuple[str, ...], fn: str = "sum") -> str:
    """Return `fn` of the series with equal labels at the end of the chosen time: of the newest point of each."""
    return (
        f'SELECT {fn}("last") AS "{fn}" FROM (SELECT last("{field}") AS "last" FROM {source} '
        f"WHERE $timeFilter{_and(where)} GROUP BY *) WHERE $timeFilter GROUP BY {_labels(labels).removeprefix(', ')}"
    )


def held(source: str, field: str = "count", *, where: str = "") -> str:
    """Return each series over time; it holds until it is written again."""
    return (
        f'SELECT last("{field}") AS "sum" FROM {source} WHERE $timeFilter{_and(where)} '
        "GROUP BY time($__interval), * fill(previous)"
    )


def rate(
    source: str, field: str = "count", *, where: str = "", labels: tuple[str, ...], non_negative: bool = False
) -> str:
    """Return how fast the sum over the series with equal labels grows, per second: what each interval added to it."""
    difference = "non_negative_difference" if non_negative else "difference"
    return (
        f'SELECT sum("added") * 1000 / $__interval_ms AS "rate" FROM (SELECT {difference}(last("{field}")) AS "added" '
        f"FROM {source} WHERE $timeFilter{_and(where)} GROUP BY time($__interval), * fill(none)) "
        f"WHERE $timeFilter GROUP BY time($__interval){_labels(labels)} fill(0)"
    )


def own(name: str, *, field: str = "max", labels: tuple[str, ...] = ("command",)) -> str:
    """Return a figure of the aggregator's or the shipper's own over time."""
    return line(f'"{name}"', field, where="\"app\" = 'tallystream'", labels=labels)


def own_rate(name: str, *, field: str = "count") -> str:
    """Return how fast a count of the aggregator's or the shipper's own grows, per second."""
    return rate(f'"{name}"', field, where="\"app\" = 'tallystream'", labels=("command",))


def _and(where: str) -> str:
    return f" AND {where}" if where else ""


def _labels(labels: tuple[str, ...]) -> str:
    return "".join(f', "{label}"' for label in labels if label != "_measurement")
