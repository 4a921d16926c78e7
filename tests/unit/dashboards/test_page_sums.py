"""Lines, sums and lags as the page shows them: clipped, added up, as rates, and as text."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tallystream_aggregator.sinks.base import Field, Series
from tallystream_dashboards import formatting
from tallystream_dashboards.data.lines import Line, clip, downsample, rate
from tallystream_dashboards.data.sums import counted, metrics, with_totals
from tallystream_dashboards.lag.catch_up import CatchUp
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Evaluation, Status
from tallystream_dashboards.lag.time_lag import TimeLag
from tallystream_dashboards.page import tables
from tallystream_dashboards.page.views.lag import worst_of

VALUES = st.one_of(st.none(), st.integers(-1000, 1000))


@st.composite
def some_lines(draw: st.DrawFn, *, longest: int = 60) -> Line:
    times = sorted(draw(st.sets(st.integers(0, 10_000), max_size=longest)))
    return Line("x", times, draw(st.lists(VALUES, min_size=len(times), max_size=len(times))))


@given(some_lines(), st.integers(0, 10_000), st.integers(0, 10_000))
def test_clipping_keeps_every_value_inside(line: Line, a: int, b: int) -> None:
    """At every moment of the period the clipped line has the value of the original."""
    start, end = min(a, b), max(a, b)
    clipped = clip(line, start, end)
    assert all(start <= t <= end for t in clipped.times_ms)
    for moment in {start, end, (start + end) // 2, *[t for t in line.times_ms if start <= t <= end]}:
        assert clipped.at(moment) == line.at(moment)


@given(some_lines(longest=300), st.integers(4, 60))
def test_downsampling_keeps_ends_and_extremes_within_the_limit(line: Line, limit: int) -> None:
    """A downsampled line has at most `limit` points, in order, with both ends, the highest and the lowest."""
    downsampled = downsample(line, limit)
    pairs, kept = (
        list(zip(line.times_ms, line.values, strict=True)),
        list(zip(downsampled.times_ms, downsampled.values, strict=True)),
    )
    assert len(kept) <= limit
    assert kept == [pair for pair in pairs if pair in set(kept)]
    if pairs:
        assert (kept[0], kept[-1]) == (pairs[0], pairs[-1])
    known = [value for value in line.values if value is not None]
    if known:
        assert max(known) in downsampled.values
    if known and None not in line.values:
        assert min(known) in downsampled.values


def test_downsampling_keeps_a_gap() -> None:
    """A moment without a value is a gap in the downsampled line, too."""
    values: list[float | int | None] = [1] * 1000
    values[500] = None
    assert None in downsample(Line("x", list(range(1000)), values), 100).values


def test_a_rate_is_growth_by_time() -> None:
    """100 in 50 s is 2 a second. If the line is shorter than the window, the rate is that of the line."""
    line = Line("x", [0, 30_000, 50_000], [0, 10, 100])
    assert rate(line, window_ms=60_000, at_ms=50_000) == 2.0
    assert rate(line, window_ms=20_000, at_ms=50_000) == 4.5


def test_a_rate_is_finite() -> None:
    """A float counter may have any finite value. A growth that is no float has no rate."""
    assert rate(Line("x", [0, 30_000], [0.0, 1.5e308]), window_ms=60_000, at_ms=30_000) == 5e306
    assert rate(Line("x", [0, 30_000], [-1e308, 1.5e308]), window_ms=60_000, at_ms=30_000) is None


def test_a_rate_may_be_unknown() -> None:
    """An empty line, a single moment, a gap and a fall have no rate."""
    assert rate(Line("x"), window_ms=1, at_ms=1) is None
    assert rate(Line("x", [5], [1]), window_ms=60_000, at_ms=5) is None
    assert rate(Line("x", [0, 9000], [None, 1]), window_ms=60_000, at_ms=9000) is None
    assert rate(Line("x", [0, 9000], [5, 1]), window_ms=60_000, at_ms=9000) is None


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
    assert counter.rates(0, 119_999).times_ms[-1] == 119_999
    (gauge,) = metrics([series("g", "sum", {0: 5.0, 60_000: 7.0}, metric_type="gauge")])
    assert (gauge.rate(60_000), gauge.rates(0, 60_000).times_ms) == (None, [])


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


def test_the_lag_of_a_group_is_the_same_in_the_table_as_in_a_tile() -> None:
    """It is a lower bound if partitions without a committed offset have records."""
    for found in (state(4421), state(4421, uncommitted_records=9), state(None)):
        (row,) = tables.groups([found], {}, str, now_ms=0)
        assert row["Lag"] == found.lag_text


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
