"""Text and text tables for the page, with names that are never rendered as Markdown or HTML.

Names come from applications, brokers and the page's address, and Streamlit renders text as Markdown. Escaping is not
enough: Streamlit looks for links, emoji and icons in text that is already unescaped. It does not look into code spans,
so a word that may have another meaning becomes a code span.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tallystream_aggregator.terminal import printable
from tallystream_dashboards import formatting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

_HARMLESS = re.compile(r"""["'(≥]*[^\W_]+(?:[-_.,/'%+][^\W_]+)*[%)"',.:;?!]*|[·≥]""")
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

STYLE = """
.text-table { width: 100%; border-collapse: collapse; font-size: .875rem; }
.text-table th { text-align: left; font-weight: 400; opacity: .7; white-space: nowrap; }
.text-table th, .text-table td { padding: .35rem .5rem; vertical-align: top;
  border-bottom: 1px solid color-mix(in srgb, currentcolor 15%, transparent); }
.text-table td { white-space: nowrap; }
.text-table .words { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
.text-table .number { text-align: right; font-variant-numeric: tabular-nums; }
.text-table img { display: block; max-width: none; }
.text-table .badge { justify-self: start; padding: .05rem .4rem; border-radius: .4rem; font-size: .8rem; }
.text-table .green { background: color-mix(in srgb, #158237 22%, transparent); }
.text-table .orange { background: color-mix(in srgb, #e2660c 26%, transparent); }
.text-table .red { background: color-mix(in srgb, #d9362b 26%, transparent); }
.text-table .gray { background: color-mix(in srgb, currentcolor 12%, transparent); }
.st-key-groups-table, .st-key-partitions-table { max-height: 44rem; overflow: auto; }
@media (max-width: 640px) {
  .text-table thead { display: none; }
  .text-table, .text-table tbody, .text-table tr, .text-table td { display: block; }
  .text-table tr { padding: .5rem 0; border-bottom: 1px solid color-mix(in srgb, currentcolor 25%, transparent); }
  .text-table td, .text-table td.number { border: 0; padding: .1rem 0; display: grid; grid-template-columns: 6.5rem 1fr;
    text-align: left; }
  .text-table td::before { content: attr(data-name); opacity: .7; }
  .st-key-groups-table, .st-key-partitions-table { max-height: none; }
}
"""

_WORDS = {"Group", "Topic", "Why"}
_NUMBERS = {"Lag", "Time lag", "Partitions", "Partition", "Produced/s", "Consumed/s", "Committed", "End"}


def html_table(content: pd.DataFrame, colors: Mapping[str, str]) -> str:
    """Return the table as HTML. Lists of text become badges in their `colors`, lists of numbers a sparkline."""
    head = "".join(f"<th{_kind(name)}>{escape(name)}</th>" for name in content.columns)
    rows = content.to_dict(orient="records")
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{_kind(str(name))} data-name="{escape(str(name))}">{_cell(value, colors)}</td>'
            for name, value in row.items()
        )
        + "</tr>"
        for row in rows
    )
    return f'<table class="text-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _kind(name: str) -> str:
    return ' class="words"' if name in _WORDS else ' class="number"' if name in _NUMBERS else ""


def _cell(value: Any, colors: Mapping[str, str]) -> str:
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
    return f'<img alt="" width="{WIDTH}" height="{HEIGHT}" src="data:image/svg+xml,{quote(svg)}">'
