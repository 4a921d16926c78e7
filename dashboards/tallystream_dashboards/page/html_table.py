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

from tallystream_dashboards import formatting
from tallystream_dashboards.printable import printable

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
MAX_DIGITS = 4
"""The digits of the values in a sparkline's text."""

STYLE = """
.text-table { width: 100%; border-collapse: collapse; font-size: .875rem; }
.text-table caption { text-align: left; padding: 0 .5rem .2rem; font-weight: 600; }
.text-table th { text-align: left; font-weight: 400; white-space: nowrap; }
.text-table thead th { opacity: .75; }
.text-table th, .text-table td { padding: .35rem .5rem; vertical-align: top;
  border-bottom: 1px solid color-mix(in srgb, currentcolor 15%, transparent); }
.text-table td, .text-table tbody th { white-space: nowrap; }
.text-table .words { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
.text-table .number { text-align: right; font-variant-numeric: tabular-nums; }
.text-table img { display: block; max-width: none; }
.text-table .badge { justify-self: start; padding: .05rem .4rem; border-radius: .4rem; font-size: .8rem; }
.text-table .green { background: color-mix(in srgb, #158237 22%, transparent); }
.text-table .orange { background: color-mix(in srgb, #e2660c 26%, transparent); }
.text-table .red { background: color-mix(in srgb, #d9362b 26%, transparent); }
.text-table .gray { background: color-mix(in srgb, currentcolor 12%, transparent); }
.table-box { max-height: 44rem; overflow: auto; }
@media (max-width: 640px) {
  .text-table thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .text-table, .text-table caption, .text-table tbody, .text-table tr { display: block; }
  .text-table tr { padding: .5rem 0; border-bottom: 1px solid color-mix(in srgb, currentcolor 25%, transparent); }
  .text-table td, .text-table tbody th, .text-table td.number { border: 0; padding: .1rem 0; display: grid;
    grid-template-columns: 6.5rem 1fr; text-align: left; white-space: normal; overflow-wrap: anywhere; }
  .text-table td::before, .text-table tbody th::before { content: attr(data-name); opacity: .75; }
  .table-box { max-height: none; }
}
"""

_WORDS = {"Group", "Topic", "Why", "Metric", "Tags", "Event"}
_NUMBERS = {
    *("Lag", "Time lag", "Partitions", "Partition", "Produced/s", "Consumed/s", "Committed", "End", "Sum", "Mean"),
    *("Living instances", "Living lives", "Counted from", "Position", "Offsets"),
}


def html_table(content: pd.DataFrame, colors: Mapping[str, str], *, caption: str) -> str:
    """Return the table as HTML. Lists of text become badges in their `colors`, lists of numbers a sparkline.

    The roles are those that the elements have. Without them a screen reader would not find a table on a narrow screen,
    where the rows are blocks. The box can be scrolled by keyboard.
    """
    head = "".join(f'<th role="columnheader" scope="col"{_kind(name)}>{escape(name)}</th>' for name in content.columns)
    body = "".join(
        f'<tr role="row">{"".join(_column(str(name), value, colors, first=not at) for at, (name, value) in row)}</tr>'
        for row in (enumerate(record.items()) for record in content.to_dict(orient="records"))
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
