"""Draw the view of the aggregator's own pipeline: each hop's delay, now and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from tallystream_dashboards.page import components, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.page.data.lines import Drawn
    from tallystream_dashboards.page.data.pipeline import Hop


def draw_pipeline(hops: Sequence[Hop], delays: Drawn) -> None:
    """Draw the hops from left to right, their delays over time, and a table with details."""
    for column, hop in zip(st.columns(len(hops)), hops, strict=True):
        column.metric(
            hop.name,
            hop.delay,
            hop.status.name if hop.status is not None else None,
            delta_color=components.COLORS[hop.status] if hop.status is not None else "off",
            delta_arrow="off",
            **components.TILE,
        )
    components.chart("Delay of each hop, seconds", delays, key="delay-chart")
    components.text_table(tables.hops(hops), key="hops-table")
