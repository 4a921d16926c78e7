"""The page's tables, and the texts of lag in them."""

from __future__ import annotations

from dataclasses import replace

from tallystream_aggregator.sinks.base import Series
from tallystream_dashboards import formatting
from tallystream_dashboards.data.lines import Line
from tallystream_dashboards.data.sums import counted, metrics
from tallystream_dashboards.lag.catch_up import CatchUp
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Evaluation, Status
from tallystream_dashboards.lag.time_lag import TimeLag
from tallystream_dashboards.page import tables
from tallystream_dashboards.page.views.lag import worst_of


def state(lag: int | None = 3, status: Status = Status.OK, **known: object) -> GroupState:
    values = {"lag": lag, "time_lag": TimeLag(75), "catch_up": CatchUp("≥ 1 min", 60), "partition_count": 4}
    return GroupState("g", Evaluation(status, "No progress."), 1000, **{**values, **known})  # type: ignore[arg-type]


def test_a_lag_that_is_known_in_part_is_a_lower_bound() -> None:
    """If the lag of some partitions is unknown, the sum has a sign. If none is known, it is a dash."""
    assert (state(4421).lag_text, state(4421, uncommitted_records=9).lag_text, state(None).lag_text) == (
        "4,421",
        "≥ 4,421",
        formatting.DASH,
    )


def test_the_worst_group_is_a_consumer() -> None:
    """One of Tallystream's own groups is shown as the worst only if it is WARN or worse."""
    own = replace(state(900), group="prod.tallystream-aggregator")
    app, unknown = state(3), replace(state(None), group="new")
    assert worst_of([own, unknown, app]) is app
    assert worst_of([own, unknown]) is None
    stopped = replace(own, evaluation=Evaluation(Status.STOP, "No progress."))
    assert worst_of([stopped, app]) is stopped


def test_a_status_has_a_duration_from_a_minute_on() -> None:
    """A status that began less than a minute ago has no duration."""
    assert tables.since(state(since_ms=0), 59_000) == ""
    assert tables.since(state(since_ms=0), 200_000) == " for 3 min 20 s"


def sums_table(name: str, type_: str, **fields: float) -> tables.Table:
    """Return the table of one sum with these fields."""
    tags = {"app": "a", "metric_type": type_}
    return tables.sums(
        metrics(Series(name, tags, field, [5], [value]) for field, value in fields.items()), str, at_ms=5
    )


def test_a_distribution_shows_its_count_and_its_mean() -> None:
    """A timer has a number of calls, a mean time and percentiles, a histogram a number of values and their mean."""
    (timer,) = sums_table("batch", "timer", count=1234, sum=15.425, p50=0.012, p99=1.5)
    (histogram,) = sums_table("size", "histogram", count=4, sum=10.0)
    assert [(one["Sum"], one["Mean"], one["p50"], one["p99"]) for one in (timer, histogram)] == [
        ("1,234 calls", "12.5 ms", "12 ms", "1.5 s"),
        ("4 values", "2.50", "", ""),
    ]
    assert [counted(type_, "x") for type_ in ("timer", "histogram", "position", "counter", "gauge")] == [
        "Calls of x",
        "Values of x",
        "Position of x",
        "Sum of x",
        "Sum of x",
    ]


def test_a_trend_ends_with_the_last_value() -> None:
    """The sparkline has a fixed number of points, from the first to the last value."""
    trend = tables.trend(Line("g", [0, 500, 1000], [4, 9, 2]))
    assert (len(trend), trend[0], trend[-1]) == (tables.TREND_POINTS, 4, 2)
    assert tables.trend(Line("g")) == []
