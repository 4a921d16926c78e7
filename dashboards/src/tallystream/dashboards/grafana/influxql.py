"""InfluxQL as the panels need it. The time range and the interval are Grafana's.

InfluxQL sees nothing before the chosen time: a sum that has not changed in it is not there, and a series counts from
its first point in it.
"""

from __future__ import annotations

APP = '"app" =~ /^${app:regex}$/'
SUMS = "/^${metric:regex}$/"
"""The chosen metrics: sums only, since names of what single instances say begin otherwise."""


def line(
    source: str, field: str, *, where: str = "", labels: tuple[str, ...] = (), fn: str = "max", name: str = "value"
) -> str:
    """Return lines over time: in each interval `fn` of the points with equal labels."""
    return (
        f'SELECT {fn}("{field}") AS "{name}" FROM {source} WHERE $timeFilter{_and(where)} '
        f"GROUP BY time($__interval){_labels(labels)} fill(none)"
    )


def total(source: str, field: str = "count", *, where: str = "", labels: tuple[str, ...]) -> str:
    """Return the sum over the series with equal labels over time; each holds until it is written again."""
    return (
        f'SELECT sum("last") AS "sum" FROM (SELECT last("{field}") AS "last" FROM {source} '
        f"WHERE $timeFilter{_and(where)} "
        f"GROUP BY time($__interval), * fill(previous)) WHERE $timeFilter GROUP BY time($__interval){_labels(labels)} "
        "fill(none)"
    )


def rate(
    source: str, field: str = "count", *, where: str = "", labels: tuple[str, ...], non_negative: bool = False
) -> str:
    """Return how fast the sum over the series with equal labels grows, per second."""
    derivative = "non_negative_derivative" if non_negative else "derivative"
    return (
        f'SELECT sum("rate") AS "rate" FROM (SELECT {derivative}(last("{field}"), 1s) AS "rate" FROM {source} '
        f"WHERE $timeFilter{_and(where)} GROUP BY time($__interval), * fill(previous)) "
        f"WHERE $timeFilter GROUP BY time($__interval){_labels(labels)} fill(none)"
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
