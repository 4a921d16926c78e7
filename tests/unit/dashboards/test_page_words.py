"""Numbers, times, addresses and tables as people read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from support.invalid_times import INVALID_TIMES
from tallystream_dashboards import formatting
from tallystream_dashboards.lag.catch_up import Between, Drain, Never, NotKnown, Steady
from tallystream_dashboards.lag.formatting import lag_range, why
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Evaluation, Status
from tallystream_dashboards.lag.time_lag import Exact
from tallystream_dashboards.page import tables
from tallystream_dashboards.page.data.lines import Line
from tallystream_dashboards.page.data.pipeline import hops
from tallystream_dashboards.page.data.sums import SumRow, counted
from tallystream_dashboards.page.url_state import Selection, chosen_moment, options, parse, refresh_every
from tallystream_dashboards.page.views.groups import worst_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, formatting.NOTHING),
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
    """Whole numbers are exact and grouped; others have the digits that matter."""
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
    """Two units at most, and never a negative duration."""
    assert formatting.duration(seconds) == text


def test_rates() -> None:
    """A rate has its unit; an unknown one is no number."""
    assert (formatting.per_second(2000.04), formatting.per_second(None)) == ("2,000/s", formatting.NOTHING)
    assert [formatting.rate(value) for value in (31.62, 0.04, 1234.56, 7)] == ["31.6", "0", "1,234.6", "7"]


def test_the_clock_shows_the_date_when_it_is_not_today() -> None:
    """Times are in the reader's zone, and what is not of today says so."""
    noon = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
    assert formatting.clock(noon, UTC, now_ms=noon) == "22:13:20"
    assert formatting.clock(noon, UTC, now_ms=noon + 86_400_000) == "2023-11-14 22:13:20"
    assert formatting.clock(noon, ZoneInfo("Asia/Tokyo"), now_ms=noon) == "07:13:20"


def test_an_address_leads_back_to_what_it_was_made_from() -> None:
    """What the page shows survives the trip through its address."""
    for chosen in (
        Selection(view="metrics", app="my app", metric="a.b", range="6h"),
        Selection(view="groups", group="g&h", at="2026-11-20T03:12"),
        Selection(view="pipeline", range="7d", at="2026-11-20T03:12:30"),
        Selection(view="twice", app="x"),
    ):
        assert parse(chosen.params()) == chosen
    assert parse(Selection().params()) == Selection()


def test_a_bad_address_falls_back() -> None:
    """An unknown range, view or moment, or an empty name, is no error page; an app alone means the metrics."""
    assert parse({"range": "eternity", "app": "", "view": "x", "at": "noon"}) == Selection()
    assert parse({"app": "orders"}).view == "metrics"
    assert parse({"at": "2026-11-20T12:00+02:00"}).at_ms == 1_795_168_800_000
    assert [parse({"at": text}) for text in INVALID_TIMES] == [Selection()] * len(INVALID_TIMES)


def test_a_link_may_come_before_its_data() -> None:
    """What was asked for is among the choices although the store does not know it yet."""
    assert options(["b", "a"], "c") == ["a", "b", "c"]
    assert options(["b", "a"], "b") == ["a", "b"]


def test_long_periods_refresh_slowly() -> None:
    """A quarter of an hour refreshes as told; a day does not need it every two seconds."""
    assert (refresh_every(2, 900), refresh_every(2, 86_400), refresh_every(60, 86_400)) == (2, 48, 60)


def state(lag: int | None = 3, status: Status = Status.OK, **known: object) -> GroupState:
    judged = Evaluation(status, "It stands.")
    return GroupState("g", lag, Exact(75), None, Between(60, None), judged, (), 1000, count=4, **known)  # type: ignore[arg-type]


def test_the_reason_says_what_a_number_hides() -> None:
    """The status's reason; a group that is known only in part, or whose clocks are off, says so."""
    assert why(state()) == "It stands."
    assert why(state(unknown=1, unread=40)) == (
        "It stands. Nothing valid is committed in 1 of 4 partitions, which hold 40 records."
    )
    assert why(state(logged_skew_ms=37_000)).startswith("It stands. Timestamps are 37 s ahead")


def test_a_lag_that_is_known_in_part_is_a_bound() -> None:
    """A sum over the partitions that are known is at least that; nothing known is no number."""
    assert (lag_range(state(4421)), lag_range(state(4421, unread=9)), lag_range(state(None))) == (
        "4,421",
        "≥ 4,421",
        formatting.NOTHING,
    )


def test_the_table_of_groups_has_words_and_exact_numbers() -> None:
    """Status, time lag and time to catch up beside the lag; an unknown lag is an empty cell, and no lag is a float."""
    trends = {"g": Line("g", [0, 1000], [8, 3])}
    table = tables.groups([state(2**53 + 1, Status.ERR), state(None, gone=True)], trends, str, now_ms=2000)
    assert table["Lag"][0] == 2**53 + 1
    assert table["Lag"].isna().tolist() == [False, True]
    assert table.loc[0, ["Status", "Time lag", "Catches up in"]].tolist() == [["ERR"], "1 min 15 s", "1 min or never"]
    assert table["Status"][1] == ["GONE"]


@pytest.mark.parametrize(
    ("drain", "said"),
    [
        (Between(60, None), "3 records behind. Catches up in 1 min or never. It stands."),
        (Never(), "3 records behind. Catches up: never at this rate. It stands."),
        (Steady(), "3 records behind. It keeps up. It stands."),
        (NotKnown(), "3 records behind. It stands."),
    ],
)
def test_a_hop_says_in_what_time_it_catches_up(drain: Drain, said: str) -> None:
    """In the words of the page's tiles; nothing where it is not known yet."""
    found = hops(replace(state(), drain=drain), None, arrived_ms=None, stored_ms=None, now_ms=0)
    assert found[1].detail == said


def test_the_worst_group_is_an_applications() -> None:
    """Tallystream's own groups are named as the worst when something is wrong with them, and not among healthy ones."""
    own = replace(state(900), group="prod.tallystream-aggregator")
    app, unknown = state(3), replace(state(None), group="new")
    assert worst_of([own, unknown, app]) is app
    assert worst_of([own, unknown]) is None
    bad = replace(own, evaluation=Evaluation(Status.STOP, "It stands."))
    assert worst_of([bad, app]) is bad


def test_since_when_is_said_from_a_minute_on() -> None:
    """A status that has just changed needs no duration."""
    assert tables.since(state(since_ms=0), 59_000) == ""
    assert tables.since(state(since_ms=0), 200_000) == " for 3 min 20 s"


def test_tables_without_rows_keep_their_columns() -> None:
    """A group that a link names and nobody knows has an empty table, not an error."""
    assert tables.partitions([], str).columns.tolist()[:4] == ["Topic", "Partition", "Status", "Lag"]


def test_the_table_of_sums_is_exact() -> None:
    """A count above 2**53 is shown to the last digit: it is text for the browser."""
    row = SumRow("n", "a=1", "counter", 2**63 - 1, None, 2, 3, 5)
    assert tables.sums([row], str)["Sum"].tolist() == ["9,223,372,036,854,775,807"]


def test_a_distribution_shows_what_it_counts_and_its_mean() -> None:
    """A timer's number is its calls and its mean is a time; a histogram's number is its values."""
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
    """Three digits and the unit that suits them; from a minute on, a duration."""
    assert formatting.mean_time(seconds) == text


def test_a_trend_ends_with_the_last_value() -> None:
    """The sparkline has its evenly spaced points and ends where the number beside it is."""
    trend = tables.trend(Line("g", [0, 500, 1000], [4, 9, 2]))
    assert (len(trend), trend[0], trend[-1]) == (tables.TREND_POINTS, 4, 2)
    assert tables.trend(Line("g")) == []


def test_the_seconds_of_a_link_are_kept() -> None:
    """The field knows minutes; a link to a second leads to that second until another minute is chosen."""
    minute = datetime(2026, 11, 20, 3, 12)  # noqa: DTZ001 (the field's own form)
    assert chosen_moment(minute, "2026-11-20T03:12:44") == "2026-11-20T03:12:44"
    assert chosen_moment(minute, "2026-11-20T03:13:44") == "2026-11-20T03:12"
    assert chosen_moment(minute, None) == "2026-11-20T03:12"
