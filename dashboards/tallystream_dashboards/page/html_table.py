"""Text and text tables for the page, with names that are never rendered as Markdown or HTML.

Names come from applications, brokers and the page's address, and Streamlit renders text as Markdown. Escaping is not
enough: Streamlit looks for links, emoji and icons in text that is already unescaped. It does not look into code spans,
so a word that may have another meaning becomes a code span.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from tallystream_dashboards import formatting
from tallystream_dashboards.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HARMLESS = re.compile(r"""["'(≥]*[^\W_]+(?:[-_.,/'%+][^\W_]+)*[%)"',.:;?!]*|\d\d:\d\d:\d\d[.,:]?|[·≥]""")
_ADDRESS = re.compile(r"www\.", re.IGNORECASE)
_LIST = re.compile(r"\d+[.)]")


def literal(text: object) -> str:
    """Return Markdown that shows the text unchanged, without link, image, icon, formula or emphasis.

    Runs of white space are shown as one space, other unprintable characters as Python escapes.
    """
    words = [printable(word) for word in str(text).split()]
    return " ".join(word if _harmless(word, first=not at) else _code(word) for at, word in enumerate(words))


def _harmless(word: str, *, first: bool) -> bool:
    listed = first and _LIST.fullmatch(word)
    return _HARMLESS.fullmatch(word) is not None and _ADDRESS.search(word) is None and not listed


def _code(word: str) -> str:
    """Return a code span. Its fence is longer than any run of backticks inside, with a space between them."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", word)), default=0))
    space = " " if "`" in word else ""
    return f"{fence}{space}{word}{space}{fence}"


WIDTH, HEIGHT = 100, 24
MAX_DIGITS = 4
"""The digits of the values in a sparkline's text."""


class Anchor(NamedTuple):
    """A text that leads to an address of the page."""

    text: str
    address: str


_WORDS = {"Group", "Topic", "Why", "Metric", "Tags", "Event", "App", "Main sum"}
_NUMBERS = {
    *("Lag", "Time lag", "Partitions", "Partition", "Produced/s", "Consumed/s", "Committed", "End", "Sum", "Mean"),
    *("Rate/s", "p50", "p99", "Living", "Ended", "Silent", "Lost", "Twice"),
    *("Living instances", "Living lives", "Offsets", "Processed", "Before", "In flight"),
}


def html_table(rows: Sequence[Mapping[str, Any]], colors: Mapping[str, str], *, caption: str) -> str:
    """Return the table as HTML. Lists of text become badges in their `colors`, lists of numbers a sparkline.

    The roles are those that the elements have. Without them a screen reader would not find a table on a narrow screen,
    where the rows are blocks. The box can be scrolled by keyboard. The names of the columns are buttons, to which
    `table.js` listens.
    """
    names = rows[0] if rows else ()
    head = "".join(
        f'<th role="columnheader" scope="col"{_kind(name)}><button>{escape(name)}</button></th>' for name in names
    )
    body = "".join(
        f'<tr role="row">{"".join(_column(*cell, colors, first=not at) for at, cell in enumerate(row.items()))}</tr>'
        for row in rows
    )
    return (
        f'<div class="table-box" role="region" aria-label="{escape(caption)}" tabindex="0"><table class="text-table" '
        f'role="table"><caption>{escape(caption)}</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _column(name: str, value: Any, colors: Mapping[str, str], *, first: bool) -> str:
    """Return one cell of a row. The first one names the row."""
    tag, role = ("th", 'role="rowheader" scope="row"') if first else ("td", 'role="cell"')
    return f'<{tag} {role}{_kind(name)} data-name="{escape(name)}">{_cell(value, colors)}</{tag}>'


def _kind(name: str) -> str:
    return ' class="words"' if name in _WORDS else ' class="number"' if name in _NUMBERS else ""


def _cell(value: Any, colors: Mapping[str, str]) -> str:
    if isinstance(value, Anchor):
        return f'<a href="{escape(value.address)}">{escape(value.text)}</a>'
    if isinstance(value, str):
        return f"<span>{escape(value)}</span>"
    if isinstance(value, list):
        if value and not isinstance(value[0], str):
            return _sparkline(value)
        return "".join(f'<span class="badge {colors.get(one, "gray")}">{escape(one)}</span>' for one in value)
    return f"<span>{f'{value:,}' if isinstance(value, int) else formatting.DASH}</span>"


def _sparkline(values: Sequence[float]) -> str:
    top, last = max(values) or 1, max(1, len(values) - 1)
    points = " ".join(
        f"{WIDTH * at / last:.1f},{HEIGHT - 1 - (HEIGHT - 2) * value / top:.1f}" for at, value in enumerate(values)
    )
    line = f"<polyline points='{points}' fill='none' stroke='#4a90d9' stroke-width='1.5'/>"
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}'>{line}</svg>"
    text = f"from {values[0]:,.{MAX_DIGITS}g} to {values[-1]:,.{MAX_DIGITS}g}, at most {max(values):,.{MAX_DIGITS}g}"
    return f'<img alt="{text}" width="{WIDTH}" height="{HEIGHT}" src="data:image/svg+xml,{quote(svg)}">'
