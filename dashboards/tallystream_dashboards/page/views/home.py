"""Draw the first view: each app in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from tallystream_dashboards.page import components, tables
from tallystream_dashboards.page.html_table import literal

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_dashboards.data.home import Home
    from tallystream_dashboards.page.url_state import Selection


def draw_home(home: Home, selection: Selection, *, now_ms: int, zone: tzinfo) -> None:
    """Draw a table of the apps at the end of the period, or what to do if there are none."""
    if home.apps:
        components.table(tables.apps(home, selection), caption="Applications", key="apps-table")
        if home.stored.is_late(now_ms):
            st.caption(literal(f"Lost and twice: {home.stored.text(now_ms, zone)}"))
        components.left_out(home.left_out)
    else:
        components.no_app()
