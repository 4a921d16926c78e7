"""Names as text, in the HTML table and in Markdown."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tallystream_dashboards import formatting
from tallystream_dashboards.page.html_table import html_table, literal

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
