"""The sums on the page: their fields, their tags, and gauges without a value."""

from __future__ import annotations

from tallystream_aggregator.sinks.base import Field, Series
from tallystream_dashboards.data.sums import metrics, with_totals


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


def test_a_total_adds_up_what_differs_in_tags_only() -> None:
    """It comes before its parts. Instances may have several parts, so the most count. Gauges have no total."""
    found = with_totals(
        metrics(
            [
                series("c", "count", {1: 4, 3: 6}, topic="a"),
                series("c", "count", {2: 10}, topic="b"),
                series("c", "instances", {1: 2}, topic="a"),
                series("c", "instances", {2: 3}, topic="b"),
                series("g", "sum", {1: 2.5}, metric_type="gauge", topic="a"),
                series("g", "sum", {1: 2.5}, metric_type="gauge", topic="b"),
            ]
        )
    )
    assert [one.tags_text for one in found] == ["total of 2", "topic=a", "topic=b", "topic=a", "topic=b"]
    assert (found[0].value.times_ms, found[0].value.values) == ([1, 2, 3], [4, 14, 16])
    assert found[0].newest("instances") == 3


def test_rates_over_a_period_end_with_the_newest_one() -> None:
    """A counter that grew by 60 in its second minute had a rate of 0 and then of 1 a second."""
    (counter,) = metrics([series("c", "count", {0: 5, 60_000: 5, 120_000: 65})])
    rates = counter.rates(0, 120_000)
    assert (rates.at(60_000), rates.at(120_000)) == (0.0, 1.0)
    assert counter.rate(120_000) == 1.0
    (gauge,) = metrics([series("g", "sum", {0: 5.0, 60_000: 7.0}, metric_type="gauge")])
    assert (gauge.rate(60_000), gauge.rates(0, 60_000).times_ms) == (None, [])
