"""The view of the aggregator's own pipeline: each hop's delay, now and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from tallystream.dashboards.page import frame, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.dashboards.page.lines import Drawn
    from tallystream.dashboards.page.pipeline import Hop


def draw_pipeline(hops: Sequence[Hop], delays: Drawn) -> None:
    """The hops from left to right, their delays over time, and what there is to say about each."""
    for column, hop in zip(st.columns(len(hops)), hops, strict=True):
        column.metric(
            hop.name,
            hop.delay,
            hop.verdict.name if hop.verdict is not None else None,
            delta_color=frame.COLORS[hop.verdict] if hop.verdict is not None else "off",
            delta_arrow="off",
            **frame.TILE,
        )
    frame.chart("Delay of each hop, seconds", delays, key="delay-chart")
    frame.text_table(tables.hops(hops), key="hops-table")
