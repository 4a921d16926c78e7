"""Numbers, times, addresses and tables as people read them."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from tallystream.dashboards import units
from tallystream.dashboards.lag.drain import Between
from tallystream.dashboards.lag.evaluate import GroupState
from tallystream.dashboards.lag.seconds import Exact
from tallystream.dashboards.lag.verdict import Judgement, Verdict
from tallystream.dashboards.page import tables
from tallystream.dashboards.page.lags import GroupRow
from tallystream.dashboards.page.lines import Line
from tallystream.dashboards.page.selection import Selection, options, parse, refresh_every
from tallystream.dashboards.page.sums import SumRow


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, units.NOTHING),
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
    assert units.number(value) == text


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
    assert units.duration(seconds) == text


def test_rates() -> None:
    """A rate has its unit; an unknown one is no number."""
    assert (units.per_second(2000.04), units.per_second(None)) == ("2,000/s", units.NOTHING)


def test_the_clock_shows_the_date_when_it_is_not_today() -> None:
    """Times are in the reader's zone, and what is not of today says so."""
    noon = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
    assert units.clock(noon, UTC, now_ms=noon) == "22:13:20"
    assert units.clock(noon, UTC, now_ms=noon + 86_400_000) == "2023-11-14 22:13:20"
    assert units.clock(noon, ZoneInfo("Asia/Tokyo"), now_ms=noon) == "07:13:20"


def test_an_address_leads_back_to_what_it_was_made_from() -> None:
    """What the page shows survives the trip through its address."""
    chosen = Selection(app="my app", metric="a.b", group="g&h", range="6h")
    assert parse(chosen.params()) == chosen
    assert parse(Selection().params()) == Selection()


def test_a_bad_address_falls_back() -> None:
    """An unknown range or an empty name is no error page."""
    assert parse({"range": "eternity", "app": ""}) == Selection()


def test_a_link_may_come_before_its_data() -> None:
    """What was asked for is among the choices although the store does not know it yet."""
    assert options(["b", "a"], "c") == ["a", "b", "c"]
    assert options(["b", "a"], "b") == ["a", "b"]


def test_long_periods_refresh_slowly() -> None:
    """A quarter of an hour refreshes as told; a day does not need it every two seconds."""
    assert (refresh_every(2, 900), refresh_every(2, 86_400), refresh_every(60, 86_400)) == (2, 48, 60)


def group(lag: int | None, *, unknown: int = 0, gone: bool = False) -> GroupRow:
    return GroupRow("g", "consumer", lag, lag, 4, unknown, 1000, gone, Line("g", [0, 1000], [8, lag]))


def state(verdict: Verdict = Verdict.OK) -> GroupState:
    return GroupState("g", 3, Exact(75), None, Between(60, None), Judgement(verdict, "It stands."), (), 1000)


def test_the_reason_says_what_a_number_hides() -> None:
    """The verdict's reason; a group that is gone or known only in part says so."""
    assert tables.why(group(3), state()) == "It stands."
    assert tables.why(group(3, unknown=1), state()) == "Nothing committed in 1 of 4 partitions. It stands."
    assert tables.why(group(3, gone=True), state()).startswith("It is no longer on the broker")


def test_the_table_of_groups_has_words_and_exact_numbers() -> None:
    """Verdict, age and time to drain beside the lag; an unknown lag is an empty cell, and makes no float of another."""
    table = tables.groups([group(2**53 + 1), group(None)], {"g": state(Verdict.ERR)}, str)
    assert table["Lag"][0] == 2**53 + 1
    assert table["Lag"].isna().tolist() == [False, True]
    assert table.loc[0, ["Verdict", "Age", "Through in"]].tolist() == [["ERR"], "1 min 15 s", "1 min or never"]


def test_tables_without_rows_keep_their_columns() -> None:
    """A group that a link names and nobody knows has an empty table, not an error."""
    assert tables.partitions([], None, str).columns.tolist()[:4] == ["Topic", "Partition", "Verdict", "Lag"]


def test_the_table_of_sums_is_exact() -> None:
    """A count above 2**53 is shown to the last digit: it is text for the browser."""
    row = SumRow("n", "a=1", "counter", 2**63 - 1, None, 2, 3, 5)
    assert tables.sums([row], str)["Sum"].tolist() == ["9,223,372,036,854,775,807"]


def test_a_trend_ends_with_the_last_value() -> None:
    """The sparkline has its evenly spaced points and ends where the number beside it is."""
    trend = tables.trend(Line("g", [0, 500, 1000], [4, 9, 2]))
    assert (len(trend), trend[0], trend[-1]) == (tables.TREND_POINTS, 4, 2)
    assert tables.trend(Line("g")) == []
