"""Numbers, times, addresses and tables as the page shows them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from support.moments import OUTSIDE
from tallystream_dashboards import formatting
from tallystream_dashboards.lag.catch_up import Between, CatchUp, TimeToCatchUp
from tallystream_dashboards.lag.formatting import lag_range, why
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Evaluation, Status
from tallystream_dashboards.lag.time_lag import TimeLag
from tallystream_dashboards.page import tables
from tallystream_dashboards.page.data.lines import Line
from tallystream_dashboards.page.data.pipeline import hops
from tallystream_dashboards.page.data.sums import SumRow, counted
from tallystream_dashboards.page.url_state import Selection, chosen_moment, options, parse, refresh_every
from tallystream_dashboards.page.views.lag import worst_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, formatting.DASH),
        (0, "0"),
        (1234567, "1,234,567"),
        (9_007_199_254_740_993, "9,007,199,254,740,993"),
        (2.0, "2"),
        (1234.56, "1,234.6"),
        (3.14159, "3.14"),
        (0.00123, "0.00123"),
        (-5, "-5"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    """Integers are exact, with separators. Other numbers are rounded."""
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """A duration has at most two units and is never negative."""
    assert formatting.duration(seconds) == text


def test_rates() -> None:
    """A rate has its unit. An unknown rate is a dash."""
    assert (formatting.per_second(2000.04), formatting.per_second(None)) == ("2,000/s", formatting.DASH)
    assert [formatting.rate(value) for value in (31.62, 0.04, 1234.56, 7)] == ["31.6", "0", "1,234.6", "7"]


def test_a_time_of_another_day_has_its_date() -> None:
    """Times are in the given time zone. A time that is not today's has its date."""
    noon = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
    assert formatting.clock(noon, UTC, now_ms=noon) == "22:13:20"
    assert formatting.clock(noon, UTC, now_ms=noon + 86_400_000) == "2023-11-14 22:13:20"
    assert formatting.clock(noon, ZoneInfo("Asia/Tokyo"), now_ms=noon) == "07:13:20"


def test_a_selection_is_restored_from_the_address() -> None:
    """The parameters of a selection give the same selection."""
    for chosen in (
        Selection(view="metrics", app="my app", metric="a.b", range="6h"),
        Selection(view="groups", group="g&h", at="2026-11-20T03:12"),
        Selection(view="pipeline", range="7d", at="2026-11-20T03:12:30"),
        Selection(view="twice", app="x"),
    ):
        assert parse(chosen.params()) == chosen
    assert parse(Selection().params()) == Selection()


def test_wrong_parameters_are_ignored() -> None:
    """An unknown range, view or time and an empty name give the defaults. An app alone selects the view Metrics."""
    assert parse({"range": "eternity", "app": "", "view": "x", "at": "noon"}) == Selection()
    assert parse({"app": "orders"}).view == "metrics"
    assert parse({"at": "2026-11-20T12:00+02:00"}).at_ms == 1_795_168_800_000
    assert [parse({"at": text}) for text in OUTSIDE] == [Selection()] * len(OUTSIDE)


def test_a_name_without_data_can_be_selected() -> None:
    """The requested name is among the choices, also if the store does not have it yet."""
    assert options(["b", "a"], "c") == ["a", "b", "c"]
    assert options(["b", "a"], "b") == ["a", "b"]


def test_long_periods_refresh_slowly() -> None:
    """15 minutes refresh at the chosen interval, a day every 48 s."""
    assert (refresh_every(2, 900), refresh_every(2, 86_400), refresh_every(60, 86_400)) == (2, 48, 60)


def state(lag: int | None = 3, status: Status = Status.OK, **known: object) -> GroupState:
    evaluation = Evaluation(status, "No progress.")
    return GroupState("g", lag, TimeLag(75), None, Between(60, None), evaluation, (), 1000, partition_count=4, **known)  # type: ignore[arg-type]


def test_the_reason_includes_unknown_partitions_and_skew() -> None:
    """The reason of the status is followed by sentences about partitions without a lag and about clock skew."""
    assert why(state()) == "No progress."
    assert why(state(unknown_partitions=1, uncommitted_records=40)) == (
        "No progress. Nothing valid is committed in 1 of 4 partitions, which hold 40 records."
    )
    assert why(state(stored_skew_ms=37_000)).startswith("No progress. Timestamps are 37 s ahead")


def test_a_lag_that_is_known_in_part_is_a_lower_bound() -> None:
    """If the lag of some partitions is unknown, the sum has a sign. If none is known, it is a dash."""
    assert (lag_range(state(4421)), lag_range(state(4421, uncommitted_records=9)), lag_range(state(None))) == (
        "4,421",
        "≥ 4,421",
        formatting.DASH,
    )


def test_the_table_of_groups() -> None:
    """A lag is exact, an unknown one is an empty cell. Status, time lag and time to catch up are text."""
    trends = {"g": Line("g", [0, 1000], [8, 3])}
    table = tables.groups([state(2**53 + 1, Status.ERR), state(None, gone=True)], trends, str, now_ms=2000)
    assert table["Lag"][0] == 2**53 + 1
    assert table["Lag"].isna().tolist() == [False, True]
    assert table.loc[0, ["Status", "Time lag", "Catches up in"]].tolist() == [["ERR"], "1 min 15 s", "1 min or never"]
    assert table["Status"][1] == ["GONE"]


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (Between(60, None), "3 records behind. Catches up in 1 min or never. No progress."),
        (CatchUp.NEVER, "3 records behind. Catches up: never at this rate. No progress."),
        (CatchUp.STEADY, "3 records behind. It keeps up. No progress."),
        (CatchUp.UNKNOWN, "3 records behind. No progress."),
    ],
)
def test_a_hop_has_its_time_to_catch_up(time: TimeToCatchUp, text: str) -> None:
    """The text is that of the tiles. There is none if the time is not known."""
    pipeline = hops(replace(state(), catch_up=time), None, arrived_ms=None, stored_ms=None, now_ms=0)
    assert pipeline[1].detail == text


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


def test_tables_without_rows_keep_their_columns() -> None:
    """A group without partitions has an empty table with all columns."""
    assert tables.partitions([], str).columns.tolist()[:4] == ["Topic", "Partition", "Status", "Lag"]


def test_the_table_of_sums_is_exact() -> None:
    """A count above 2**53 is text, so that the browser does not round it."""
    row = SumRow("n", "a=1", "counter", 2**63 - 1, None, 2, 3, 5)
    assert tables.sums([row], str)["Sum"].tolist() == ["9,223,372,036,854,775,807"]


def test_a_distribution_shows_its_count_and_its_mean() -> None:
    """A timer has a number of calls and a mean time, a histogram a number of values and their mean."""
    table = tables.sums(
        [SumRow("batch", "", "timer", 1234, 0.0125, 1, 1, 5), SumRow("size", "", "histogram", 4, 2.5, 1, 1, 5)], str
    )
    assert table[["Sum", "Mean"]].to_numpy().tolist() == [["1,234 calls", "12.5 ms"], ["4 values", "2.50"]]
    assert [counted(type_, "x") for type_ in ("timer", "histogram", "position", "counter", "gauge")] == [
        "Calls of x",
        "Values of x",
        "Position of x",
        "Sum of x",
        "Sum of x",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.000_003_21, "3.21 µs"), (0.0125, "12.5 ms"), (0.9996, "1 s"), (1.5, "1.5 s"), (75.2, "1 min 15 s")],
)
def test_a_mean_time_has_a_unit(seconds: float, text: str) -> None:
    """A mean time has three digits and a unit. From a minute on it is a duration."""
    assert formatting.mean_time(seconds) == text


def test_a_trend_ends_with_the_last_value() -> None:
    """The sparkline has a fixed number of points, from the first to the last value."""
    trend = tables.trend(Line("g", [0, 500, 1000], [4, 9, 2]))
    assert (len(trend), trend[0], trend[-1]) == (tables.TREND_POINTS, 4, 2)
    assert tables.trend(Line("g")) == []


def test_the_seconds_of_a_link_are_kept() -> None:
    """A link may have seconds, the field has minutes. The seconds are kept until another minute is chosen."""
    minute = datetime(2026, 11, 20, 3, 12)  # noqa: DTZ001 (as the field returns it)
    assert chosen_moment(minute, "2026-11-20T03:12:44") == "2026-11-20T03:12:44"
    assert chosen_moment(minute, "2026-11-20T03:13:44") == "2026-11-20T03:12"
    assert chosen_moment(minute, None) == "2026-11-20T03:12"
