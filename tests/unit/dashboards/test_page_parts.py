"""The parts of the page: the banner, the charts and the tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tallystream_dashboards import formatting
from tallystream_dashboards.data.lines import MAX_LINES, Line, chart_data
from tallystream_dashboards.data.problems import Problem
from tallystream_dashboards.page import charts
from tallystream_dashboards.page.banner import MAX_PROBLEMS, banner, headline
from tallystream_dashboards.page.html_table import html_table, literal
from tallystream_dashboards.page.url_state import Selection

NOW = 1_700_000_000_000
CRITICAL = Problem("Group a is ERR", "Why.", "lag-status", NOW - 60_000, "critical", {"view": "groups", "group": "a&b"})
WARNING = Problem("Group b is WARN", "Why.", "lag-seconds")


def drawn(found: Sequence[Problem], *, lag_known: bool = True) -> str:
    return banner(found, Selection(range="1h"), str, lag_known=lag_known, now_ms=NOW)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([], "Everything is well."),
        ([WARNING], "1 warning"),
        ([CRITICAL], "1 critical problem"),
        ([CRITICAL, WARNING, WARNING], "3 problems: 1 critical, 2 warnings"),
        ([WARNING, WARNING], "2 problems: 2 warnings"),
        ([CRITICAL] * 1200 + [WARNING] * 1000, "2,200 problems: 1,200 critical, 1,000 warnings"),
    ],
)
def test_the_first_sentence_is_the_answer(found: list[Problem], sentence: str) -> None:
    """The headline says whether everything is well, or how much is not."""
    assert headline(found, lag_known=True, past=False) == sentence
    assert f'<div role="status"><h2>{sentence}</h2></div>' in drawn(found)


def test_without_lag_nothing_is_said_to_be_well() -> None:
    """If no lag was ever collected, the page does not know. A time in the past was well."""
    assert "not known" in headline([], lag_known=False, past=False)
    assert "banner unknown" in drawn([], lag_known=False)
    assert headline([], lag_known=True, past=True) == "Everything was well."


def test_a_problem_has_its_time_and_links() -> None:
    """There are the time, the reason, what to do, the runbook's section, and the details in the same period."""
    html = unescape(drawn([CRITICAL]))
    assert f"<strong>Group a is ERR</strong> since {NOW - 60_000} (1 min)</p><p>Why. <a" in html
    assert "What to do: Run tallystream lag" in html
    assert 'href="?view=runbook&section=lag-status"' in html
    assert 'href="?view=groups&group=a%26b&range=1h"' in html


def test_many_problems_are_behind_a_button() -> None:
    """Of a kind three are shown at once. The others can be opened, up to a maximum. No kind hides another one."""
    html = drawn([CRITICAL] * 1250 + [WARNING])
    assert html.partition("<details>")[0].count("<strong>") == 3
    assert "<summary>1,247 more</summary>" in html
    assert "<p>1,200 more are not listed.</p></details>" in html
    assert html.count("<strong>") == MAX_PROBLEMS + 1
    assert html.count("What to do") == 2
    assert drawn([CRITICAL, WARNING, CRITICAL]).count("What to do") == 2
    assert "not listed" not in drawn([CRITICAL] * MAX_PROBLEMS)


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


NAME = '<img src="http://foreign.example/x"> "quoted" & \'single\' [a](b)'


class Parser(HTMLParser):
    """The elements, the texts of the cells, and the addresses of the images."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.texts: list[str] = []
        self.images: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the element."""
        self.elements.add(tag)
        self.images += [value or "" for name, value in attrs if name == "src"]

    def handle_data(self, data: str) -> None:
        """Add the text."""
        self.texts.append(data)


def test_names_are_text_and_numbers_exact() -> None:
    """A name is never an element. A number is exact, an unknown one is a dash, and a trend is an inline image."""
    content = [
        {"Group": NAME, "Status": [NAME], "Lag": 2**53 + 1, "Trend": [0.0, 5.0, 10.0], "Partitions": 1234},
        {"Group": "b", "Status": [], "Lag": None, "Trend": [0.0, 0.0], "Partitions": 1},
    ]
    parsed = Parser(html_table(content, {"ERR": "red"}, caption="Groups"))
    assert parsed.elements == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "button", "span", "img"}
    assert parsed.texts[:6] == ["Groups", "Group", "Status", "Lag", "Trend", "Partitions"]
    assert parsed.texts[6:] == [NAME, NAME, f"{2**53 + 1:,}", "1,234", "b", formatting.DASH, "1"]
    assert "points='0.0,23.0 50.0,12.0 100.0,1.0'" in unquote(parsed.images[0])
    assert all(image.startswith("data:image/svg+xml,") for image in parsed.images)


def test_a_trend_and_a_row_have_a_name() -> None:
    """The image of a trend has its values as text. The first cell of a row is its heading."""
    html = html_table([{"Group": "a", "Trend": [0.0, 2360.0, 7.0]}], {}, caption="Groups")
    assert 'alt="from 0 to 7, at most 2,360"' in html
    assert '<th role="rowheader" scope="row" class="words" data-name="Group"><span>a</span></th>' in html


PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = st.text(alphabet="ab1 `*_[]()!<>&\\~#+-.:/=|$@w\n\u202e", max_size=40)


@given(st.one_of(HOSTILE, st.text(max_size=40)))
@example("1. a")
@example("- a")
@example("`` `a` ``")
@example("a\\")
def test_markdown_shows_the_text_unchanged(text: str) -> None:
    """A parser finds only plain words and code, which together are the text."""
    tokens = PARSER.parse(f"**{literal(text)}** · text")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children or []
    assert {token.type for token in children} <= {"text", "code_inline", "strong_open", "strong_close"}
    alone = PARSER.parse(literal(text))
    assert [token.type for token in alone] in ([], ["paragraph_open", "inline", "paragraph_close"])
    found = "".join(token.content for token in (alone[1].children or [] if alone else []))
    printable = " ".join(
        "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in word)
        for word in text.split()
    )
    assert found == printable


@pytest.mark.parametrize(
    "word",
    ["http://a.b", "HTTPS://a", "www.a.b", "x/www.a", "me@a.b", ":smile:", ":material/home:", ":red[x]", "a--b", "$x$"],
)
def test_words_that_streamlit_renders_are_code(word: str) -> None:
    """Addresses, emoji, icons, colors, dashes and formulas are code spans, which Streamlit does not render."""
    assert literal(f"see {word} now") == f"see `{word}` now"


@pytest.mark.parametrize(
    "text",
    [
        "billing",
        "my_topic.v2-eu/0",
        "STOP in orders/0 (1 of 2 partitions): 2,360 records wait.",
        "≥ 10 min · 5%",
        "As of 00:29:34. Now.",
        "",
    ],
)
def test_ordinary_words_are_unchanged(text: str) -> None:
    """Ordinary names and the reasons of statuses are no code spans."""
    assert literal(text) == text
