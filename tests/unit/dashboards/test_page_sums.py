"""The sums on the page: their fields, their tags, and gauges without a value."""

from __future__ import annotations

from tallystream_aggregator.sinks.base import Field, Series
from tallystream_dashboards.data.sums import metrics


def series(name: str, field: str, points: dict[int, Field], **tags: str) -> Series:
    return Series(name, {"app": "orders", "metric_type": "counter"} | tags, field, list(points), list(points.values()))


def test_a_distribution_whose_newest_point_has_no_sum_has_no_mean() -> None:
    """An older sum does not fit the newest count."""
    total, count = ({1: 10.0}, {1: 4, 2: 7})
    [found] = metrics(
        [
            series("h", "count", count, metric_type="histogram"),
            series("h", "sum", total, metric_type="histogram"),
        ]
    )
    assert found.mean is None


def test_each_type_shows_its_own_value() -> None:
    """The value is a count, a position, or for gauges the sum over living lives."""
    found = metrics(
        [
            series("h", "count", {1: 4}, metric_type="histogram"),
            series("h", "sum", {1: 10.0}, metric_type="histogram"),
            series("p", "position", {1: 33}, metric_type="position"),
            series("g", "sum", {1: 2.5}, metric_type="gauge"),
            series("g", "number", {1: 2}, metric_type="gauge"),
        ]
    )
    assert {metric.name: (metric.value.last, metric.mean) for metric in found} == {
        "h": (4, 2.5),
        "p": (33, None),
        "g": (2.5, None),
    }


def test_a_gauge_without_a_living_instance_has_no_value() -> None:
    """While no instance reports a gauge, its line has a gap instead of the last value."""
    (gauge,) = metrics(
        [
            series("g", "sum", {10: 2.5, 30: 4}, metric_type="gauge"),
            series("g", "number", {10: 1, 20: 0, 30: 1, 40: 0}, metric_type="gauge"),
        ]
    )
    assert (gauge.value.times_ms, gauge.value.values) == ([10, 20, 30, 40], [2.5, None, 4, None])
