"""Draw the top of every view: whether everything is well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from tallystream_dashboards.data.observed import read_observed
from tallystream_dashboards.data.problems import problems
from tallystream_dashboards.page import banner, components

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.groups import GroupsNow
    from tallystream_dashboards.data.observed import Observed
    from tallystream_dashboards.data.period import Period
    from tallystream_dashboards.page.settings import PageSettings
    from tallystream_dashboards.page.url_state import Selection

OBSERVED_MS = 10_000
"""How long the state of the pipeline is kept for all visitors, in ms: reading it takes an hour of points."""


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
    # Of now it is valid for a time, of the past for its moment only.
    slot = period.until_ms if selection.at is not None else -(period.until_ms // OBSERVED_MS)
    observed = replace(_observed(settings.store.spec, slot, reader, period), round_ms=groups.round_ms)
    found = problems(groups.states, observed, now_ms=period.end_ms)
    clock = components.clock(zone, period.end_ms)
    lag_known = groups.round_ms is not None
    st.html(banner.banner(found, settings, selection, clock, lag_known=lag_known, now_ms=period.end_ms))


# Streamlit leaves parameters that begin with an underscore out of the key.
@st.cache_data(ttl=60, max_entries=50, show_spinner=False)
def _observed(
    store: str,  # noqa: ARG001 - a part of the key
    slot: int,  # noqa: ARG001 - a part of the key
    _reader: PointReader,
    _period: Period,
) -> Observed:
    return read_observed(_reader, end_ms=_period.end_ms, until_ms=_period.until_ms)
