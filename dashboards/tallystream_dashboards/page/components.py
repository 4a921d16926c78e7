"""The components of the views: charts, tables, messages and styles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from tallystream_dashboards import formatting
from tallystream_dashboards.data.sums import MAX_MEASUREMENTS
from tallystream_dashboards.lag.status import Status
from tallystream_dashboards.page import charts, html_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import tzinfo

    from tallystream_dashboards.data.lines import ChartData
    from tallystream_dashboards.page.metrics_data import Event
    from tallystream_dashboards.page.reading import PageData

TILE: Any = {"border": True, "height": "stretch"}

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M2 14V9h2v5zm5 0V5h2v9zm5 0V2h2v12z' fill='%230b6bcb'/%3E%3C/svg%3E"
)
"""The page's icon, inline: Streamlit would load its own from the internet."""

STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
_SORTING = st.components.v2.component("sorting", js=Path(__file__).with_name("table.js").read_text(encoding="utf-8"))

COLORS: dict[Status, Literal["green", "orange", "red", "gray"]] = {
    **dict.fromkeys(Status, "red"),
    Status.OK: "green",
    Status.NOTFOUND: "gray",
    Status.WARN: "orange",
}


def table(rows: Sequence[Mapping[str, Any]], *, caption: str, key: str) -> None:
    """Draw a table whose text wraps, so that it is shown in full on any screen. A click on a column sorts it."""
    colors = {status.name: color for status, color in COLORS.items()}
    with st.container(key=key, gap="xsmall"):
        st.html(html_table.html_table(rows, colors, caption=caption))
        _SORTING(data=key, key=f"{key}-sorting")


def chart(title: str, data: ChartData, *, key: str, events: Sequence[Event] = (), **how: bool) -> None:
    """Draw lines over time, with a mark for each event, or a caption if there are no lines. `charts.spec` says `how`.

    The title must not include a name from outside, since Vega makes it a part of an expression.
    """
    st.html(f'<h3 class="chart-title">{title}</h3>')
    if not data.lines:
        st.caption("There is nothing in the chosen period.")
        return
    drawn = [event for event in events if event.ts_ms >= data.period_ms[0]]
    # The data are not in the specification, so that the chart takes new rows without flicker.
    with st.container(key=f"{key}-box", gap="xsmall"):
        st.vega_lite_chart(
            charts.rows(data),
            charts.spec(title, events=drawn, **how),
            key=key,
        )
        st.html(charts.legend(title, data))
    if data.left_out:
        st.caption(f"The largest are drawn. Not drawn: {data.left_out:,}.")


def as_of(data: PageData, *, zone: tzinfo, every: float) -> None:
    """Draw the age of the newest lag as a caption."""
    round_ms, now_ms = data.groups.round_ms, data.period.end_ms
    if round_ms is not None:
        ago = formatting.duration((now_ms - round_ms) / 1000)
        moment = formatting.clock(round_ms, zone, now_ms=now_ms)
        now = [f"Data as of **{moment}**", f"{ago} ago", f"refreshes every {every:g} s"]
        past = [f"History at **{moment}**", "*Time* goes back to now"]
        st.caption(" · ".join(past if data.selection.at else now))


def left_out(count: int) -> None:
    """Draw how many metrics are not read, if there are some."""
    if count:
        st.caption(f"This has the first {MAX_MEASUREMENTS} metrics by name. The store has more, not read: {count:,}.")


def empty_store() -> None:
    """Draw what to do if the store has no points."""
    st.info(
        "**The store is empty.** Sums appear as soon as an application reports and the aggregator and the "
        "shipper run; lag appears as soon as the collector runs.\n\n"
        "- start everything: `tallystream up`, or with sample data: `tallystream demo --keep`\n"
        "- see what runs: `tallystream status`",
        icon=":material/hourglass_empty:",
    )


def no_app() -> None:
    """Draw what to do if there is no sum in the store."""
    st.info(
        "No application has reported yet. Embed the reporter (`tallystream.report`), and run the aggregator.",
        icon=":material/hourglass_empty:",
    )


def no_lag() -> None:
    """Draw what to do if there is no lag in the store."""
    st.info(
        "No lag has been collected yet. Start the collector: `tallystream up`, or `lag collect`.",
        icon=":material/search_off:",
    )


def index(choices: Sequence[str], selected: str | None) -> int:
    """Return the index of the selected choice, 0 if it is not among the choices."""
    return choices.index(selected) if selected is not None and selected in choices else 0


def clock(zone: tzinfo, now_ms: int) -> Callable[[int], str]:
    """Return a function that formats a moment (epoch ms) in the time zone."""
    return lambda time_ms: formatting.clock(time_ms, zone, now_ms=now_ms)
