"""The HTML table: names are escaped, and columns are aligned."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pandas as pd

from tallystream_dashboards import formatting
from tallystream_dashboards.page import tables
from tallystream_dashboards.page.html_table import html_table

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
    content = pd.DataFrame(
        {
            "Group": [NAME, "b"],
            "Status": [[NAME], []],
            "Lag": pd.Series([2**53 + 1, None], dtype="Int64"),
            "Trend": [[0.0, 5.0, 10.0], [0.0, 0.0]],
            "Partitions": [1234, 1],
        }
    )
    parsed = Parser(html_table(content, {"ERR": "red"}))
    assert parsed.elements == {"table", "thead", "tbody", "tr", "th", "td", "span", "img"}
    assert parsed.texts[:5] == ["Group", "Status", "Lag", "Trend", "Partitions"]
    assert parsed.texts[5:] == [NAME, NAME, f"{2**53 + 1:,}", "1,234", "b", formatting.DASH, "1"]
    assert "points='0.0,23.0 50.0,12.0 100.0,1.0'" in unquote(parsed.images[0])
    assert all(image.startswith("data:image/svg+xml,") for image in parsed.images)


def test_every_column_of_the_tables_has_its_alignment() -> None:
    """Lags, rates, offsets and partitions are aligned as numbers. Names and reasons wrap."""
    columns = tables.groups([], {}, str, now_ms=0).columns
    html = html_table(pd.DataFrame(columns=columns), {})
    assert re.findall('class="number">([^<]+)', html) == ["Lag", "Time lag", "Partitions"]
    assert re.findall('class="words">([^<]+)', html) == ["Group", "Why"]
    html = html_table(pd.DataFrame(columns=tables.partitions([], str).columns), {})
    numbers = ["Partition", "Lag", "Time lag", "Produced/s", "Consumed/s", "Committed", "End"]
    assert re.findall('class="number">([^<]+)', html) == numbers
    assert re.findall('class="words">([^<]+)', html) == ["Topic", "Why"]
