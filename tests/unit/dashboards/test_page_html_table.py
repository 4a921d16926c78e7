"""The table with sentences: nothing in it is markup but what the page itself makes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pandas as pd

from tallystream_dashboards import formatting
from tallystream_dashboards.page import tables
from tallystream_dashboards.page.html_table import html_table

NAME = '<img src="http://foreign.example/x"> "quoted" & \'single\' [a](b)'


class Seen(HTMLParser):
    """The elements, the texts of the cells, and the addresses of the images."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.texts: list[str] = []
        self.images: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what begins."""
        self.elements.add(tag)
        self.images += [value or "" for name, value in attrs if name == "src"]

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append(data)


def test_names_are_text_and_numbers_exact() -> None:
    """A hostile name makes no element; a number is exact, an unknown one a dash, a trend an image of the page's own."""
    content = pd.DataFrame(
        {
            "Group": [NAME, "b"],
            "Status": [[NAME], []],
            "Lag": pd.Series([2**53 + 1, None], dtype="Int64"),
            "Trend": [[0.0, 5.0, 10.0], [0.0, 0.0]],
            "Partitions": [1234, 1],
        }
    )
    seen = Seen(html_table(content, {"ERR": "red"}))
    assert seen.elements == {"table", "thead", "tbody", "tr", "th", "td", "span", "img"}
    assert seen.texts[:5] == ["Group", "Status", "Lag", "Trend", "Partitions"]
    assert seen.texts[5:] == [NAME, NAME, f"{2**53 + 1:,}", "1,234", "b", formatting.NOTHING, "1"]
    assert "points='0.0,23.0 50.0,12.0 100.0,1.0'" in unquote(seen.images[0])
    assert all(image.startswith("data:image/svg+xml,") for image in seen.images)


def test_every_column_of_the_tables_has_its_alignment() -> None:
    """Lags, rates, offsets and partitions are figures; names and reasons are words that wrap."""
    columns = tables.groups([], {}, str, now_ms=0).columns
    made = html_table(pd.DataFrame(columns=columns), {})
    assert re.findall('class="number">([^<]+)', made) == ["Lag", "Time lag", "Partitions"]
    assert re.findall('class="words">([^<]+)', made) == ["Group", "Why"]
    made = html_table(pd.DataFrame(columns=tables.partitions([], str).columns), {})
    figures = ["Partition", "Lag", "Time lag", "Produced/s", "Consumed/s", "Committed", "End"]
    assert re.findall('class="number">([^<]+)', made) == figures
    assert re.findall('class="words">([^<]+)', made) == ["Topic", "Why"]
