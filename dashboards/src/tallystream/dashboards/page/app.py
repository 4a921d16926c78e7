"""The page itself: what Streamlit runs, from top to bottom, for every visitor; the fragment runs again by itself."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC
from zoneinfo import ZoneInfo

import streamlit as st

from tallystream.aggregator.sinks.base import SinkUnavailableError
from tallystream.aggregator.sinks.stores import open_reader
from tallystream.dashboards.page import sections, serving
from tallystream.dashboards.page.reading import read_lag, read_sums
from tallystream.dashboards.page.selection import RANGES, Selection, parse, refresh_every
from tallystream.dashboards.units import duration
from tallystream.reporter.errors import ConfigError


def main() -> None:
    """Draw the page."""
    settings = serving.settings
    if settings is None:
        raise ConfigError("the page", "streamlit run", "start it with `tallystream page`, which knows the store")
    st.set_page_config(page_title="Tallystream", page_icon=sections.ICON, layout="wide")
    st.html(sections.STYLE)
    asked = parse(st.query_params)
    title, period = st.columns([3, 1], vertical_alignment="bottom")
    title.title("Tallystream", anchor=False)
    chosen = period.segmented_control(
        "Period",
        list(RANGES),
        default=asked.range,
        key="range",
        required=True,
        label_visibility="collapsed",
        width="stretch",
    )
    every = refresh_every(settings.refresh_s, RANGES[chosen])
    st.fragment(_body, run_every=every)(chosen, every)


def _body(period: str, every: float) -> None:
    settings = serving.settings
    if settings is None:
        return
    selection = sections.selected(parse(st.query_params), period)
    now_ms = round(time.time() * 1000)
    zone = ZoneInfo(st.context.timezone) if st.context.timezone else UTC
    try:
        reader = open_reader(settings.store)
        try:
            lag = read_lag(reader, selection, now_ms=now_ms)
            sums = read_sums(reader, selection, now_ms=now_ms, until_ms=lag.as_of_ms)
        finally:
            reader.close()
    except (SinkUnavailableError, ConfigError) as error:
        _unreachable(settings.store, error, every)
        return
    sections.as_of(sums, lag, now_ms=now_ms, zone=zone, every=every)
    if sums.as_of_ms is None and lag.as_of_ms is None:
        sections.empty()
        return
    sections.tiles(sums, lag)
    sections.draw_sums(sums, now_ms=now_ms, zone=zone)
    sections.draw_lag(lag, selection, now_ms=now_ms, zone=zone)
    _remember(replace(selection, app=sums.app, metric=sums.metric))


def _unreachable(store: object, error: Exception, every: float) -> None:
    st.error(
        f"**The store can't be read.** {error}\n\nStore: `{store}`. Check that it runs and that this page may read it "
        f"(`tallystream status`). The page tries again every {duration(max(1, every))}.",
        icon=":material/cloud_off:",
    )


def _remember(selection: Selection) -> None:
    wanted = selection.params()
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)


main()
