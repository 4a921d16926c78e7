"""Draw the top of every view: what a search found, and whether everything is well."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from tallystream_dashboards.data.observed import read_observed
from tallystream_dashboards.data.problems import problems
from tallystream_dashboards.data.search import read_names, search
from tallystream_dashboards.page import banner, components
from tallystream_dashboards.page.links import page_link
from tallystream_dashboards.printable import printable

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.groups import GroupsNow
    from tallystream_dashboards.data.observed import Observed
    from tallystream_dashboards.data.period import Period
    from tallystream_dashboards.data.search import Found
    from tallystream_dashboards.page.settings import PageSettings
    from tallystream_dashboards.page.url_state import Selection

OBSERVED_MS = 10_000
"""How long the state of the pipeline is kept for all visitors, in ms: reading it takes an hour of points."""
NAMES_MS = 60_000
"""How long the names that a search finds are kept for all visitors, in ms."""


def draw_banner(
    reader: PointReader,
    settings: PageSettings,
    selection: Selection,
    period: Period,
    groups: GroupsNow,
    *,
    zone: tzinfo,
) -> None:
    """Draw whether everything is well; nothing over an empty store."""
    if groups.round_ms is None and not reader.measurements():
        return
    slot = _slot(selection, period, OBSERVED_MS)
    observed = replace(_observed(settings.store.spec, slot, reader, period), round_ms=groups.round_ms)
    found = problems(groups.states, observed, now_ms=period.end_ms)
    clock = components.clock(zone, period.end_ms)
    lag_known = groups.round_ms is not None
    st.html(banner.banner(found, settings, selection, clock, lag_known=lag_known, now_ms=period.end_ms))


def draw_found(reader: PointReader, settings: PageSettings, selection: Selection, period: Period) -> None:
    """Draw what the text in the field `search` finds, as links. A screen reader announces how many there are."""
    text = str(st.session_state.get("search") or "").strip()
    if not text:
        return
    names = _names(settings.store.spec, _slot(selection, period, NAMES_MS), reader, period)
    found, more = search(names, text)
    count = f"{len(found) + more:,} found" + (f", the first {len(found)} are:" if more else ":")
    items = "".join(_item(one, selection) for one in found)
    st.html(
        f'<nav class="found" aria-label="Search results"><p role="status">{count if found else "Nothing found."}</p>'
        f"<ul>{items}</ul></nav>"
    )


def _item(found: Found, selection: Selection) -> str:
    of = f" {escape(printable(found.of))}" if found.of else ""
    link = escape(page_link(found.params, selection))
    return f'<li>{found.kind} <a href="{link}">{escape(printable(found.name))}</a>{of}</li>'


def _slot(selection: Selection, period: Period, length_ms: int) -> int:
    """Return the key of a result that is kept: of now it is valid for a time, of the past for its moment only."""
    return period.until_ms if selection.at is not None else -(period.until_ms // length_ms)


# Streamlit leaves parameters that begin with an underscore out of the key.
@st.cache_data(ttl=60, max_entries=50, show_spinner=False)
def _observed(
    store: str,  # noqa: ARG001 - a part of the key
    slot: int,  # noqa: ARG001 - a part of the key
    _reader: PointReader,
    _period: Period,
) -> Observed:
    return read_observed(_reader, end_ms=_period.end_ms, until_ms=_period.until_ms)


@st.cache_data(ttl=120, max_entries=10, show_spinner=False)
def _names(
    store: str,  # noqa: ARG001 - a part of the key
    slot: int,  # noqa: ARG001 - a part of the key
    _reader: PointReader,
    _period: Period,
) -> list[Found]:
    return read_names(_reader, at_ms=_period.until_ms)
