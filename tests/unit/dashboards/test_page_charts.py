"""Charts: the rows and the specification that the browser gets, and the legend."""

from __future__ import annotations

import re

import pytest

from tallystream_dashboards.data.lines import MAX_LINES, Line, chart_data
from tallystream_dashboards.page import charts

BACKGROUNDS = {"light": "#ffffff", "dark": "#171614"}
"""Streamlit's backgrounds in both themes."""


def luminance(color: str) -> float:
    """Return the relative luminance as WCAG 2 defines it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", BACKGROUNDS.values(), ids=BACKGROUNDS.keys())
def test_every_line_can_be_seen_in_both_themes(background: str) -> None:
    """Each line has its own colour, with the contrast that WCAG requires of graphics: 3 or more."""
    assert len({*charts.COLORS}) == MAX_LINES
    for color in charts.COLORS:
        high, low = sorted((luminance(color), luminance(background)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 3, color


def test_a_line_keeps_its_colour_if_the_order_changes() -> None:
    """Colours are assigned by name, in the order of the legend."""
    lines = [Line(f"worker-{number}", [0, 10], [1, 100 - number]) for number in range(12)]
    for order in (lines, [*reversed(lines[:MAX_LINES]), *lines[MAX_LINES:]]):
        chart = chart_data(order, 0, 10)
        table = charts.rows(chart)
        expected = {f"worker-{number}": number for number in range(10)}
        assert dict(zip(table[charts.SERIES], table[charts.COLOR], strict=True)) == expected
        assert re.findall("</i>([^<]*)</li>", charts.legend("Lag", chart)) == list(expected)


def test_names_with_numbers_are_in_the_order_of_the_numbers() -> None:
    """Numbers of any length are compared: `int` accepts 4,300 digits only."""
    names = ["a", "w-0", "w-2", "w-010", "w-10-a", "w-" + "9" * 4400, "w-1" + "0" * 4400]
    lines = [Line(name, [0], [1]) for name in reversed(names)]
    assert re.findall("</i>([^<]*)</li>", charts.legend("Lag", chart_data(lines, 0, 10))) == names


def test_a_chart_is_also_text() -> None:
    """The text has the newest value and the range of each line."""
    lines = [Line("a", [0, 5], [9, 3]), Line("never", [0], [None]), Line("b", [0], [1])]
    text = charts.text("Lag", chart_data(lines, 0, 10))
    assert text == "Lag, newest value and range of each line. a: 3, from 3 to 9; b: 1, from 1 to 1."


def test_a_single_point_is_marked() -> None:
    """A value without a value before and after it is no line, so it is drawn as a point. Others are not."""
    line = Line("a", [0, 10, 20, 30, 40], [1, None, 2, None, None])
    table = charts.rows(chart_data([line, Line("b", [10], [7]), Line("c", [10, 20], [7, 8])], 0, 40))
    alone = table[table[charts.ALONE]]
    assert list(zip(alone[charts.SERIES], alone[charts.VALUE], strict=True)) == [("a", 1), ("a", 2), ("b", 7)]


@pytest.mark.parametrize(
    ("integers", "zero", "scale"), [(False, False, False), (False, True, True), (True, False, True)]
)
def test_the_axis_of_the_values_begins_at_0_if_it_should(integers: bool, zero: bool, scale: bool) -> None:
    """It does for whole numbers and where zero is asked for; otherwise it fits the values."""
    (drawn,) = charts.spec("Sum", step=False, integers=integers, zero=zero)["layer"]
    assert drawn["encoding"]["y"]["scale"]["zero"] is scale


def test_the_axis_covers_the_period() -> None:
    """The first and the last time are the ends of the period. Outside the lines there is no value."""
    table = charts.rows(chart_data([Line("a", [40, 60], [1, 2])], 0, 100))
    assert sorted((table[charts.TIME].astype("int64") // 10**6).tolist()) == [0, 40, 60, 100]
    assert table[charts.VALUE].isna().sum() == 2
    drawn = charts.rows(chart_data([Line("a", [0, 60], [1, 2])], 0, 100, until_ms=100))
    assert drawn[charts.VALUE].isna().sum() == 0
