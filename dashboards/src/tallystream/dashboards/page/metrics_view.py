"""The view of sums: one metric over time, by instance, with restarts; and what was processed twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from tallystream.dashboards import units
from tallystream.dashboards.page import frame, instances, tables
from tallystream.dashboards.page.lines import draw, rate
from tallystream.dashboards.page.markdown import literal
from tallystream.dashboards.page.selection import options
from tallystream.dashboards.page.sums import DISTRIBUTIONS, GAUGES, counted, mean_text, noun

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream.dashboards.page.reading_sums import SumsView
    from tallystream.dashboards.page.twice import Twice

RATE_MS = 60_000


def app_key(view: str) -> str:
    """Return under which key a view's app is in the page's state: not every view offers the same apps."""
    return "app" if view == "metrics" else f"{view}-app"


def metric_key(view: str, app: str | None) -> str:
    """Return under which key the metric is: each app has its own, since a browser keeps what a key last had."""
    return f"{view}-metric-of-{app}"


def choose(view: SumsView, kind: str) -> None:
    """Draw the choice of app and metric; the page's state has them under their keys."""
    left, right = st.columns(2)
    apps, names = options(view.apps, view.app), options(view.names, view.metric)
    left.selectbox("App", apps, key=app_key(kind), index=frame.index(apps, view.app))
    with right.container(key="metric"):
        st.selectbox("Metric", names, key=metric_key(kind, view.app), index=frame.index(names, view.metric))


def draw_metrics(view: SumsView, *, now_ms: int, zone: tzinfo) -> None:
    """One metric over time, its living instances, each instance, and the newest sum of every metric of the app."""
    _tiles(view)
    if not view.over_time.lines:
        st.info(f"No points of {literal(view.metric or 'any metric')} in this store yet.", icon=":material/search_off:")
        return
    wide, narrow = st.columns([2, 1])
    with wide:
        frame.chart(
            f"{noun(view.chosen[0].type)} over time", view.over_time, step=True, key="sum-chart", events=view.events
        )
    with narrow:
        frame.chart("Living instances over time", view.instances, step=True, whole=True, key="instances-chart")
    if view.by_instance.lines:
        frame.chart("By instance", view.by_instance, step=True, key="instance-chart", events=view.events)
        st.caption(instances.caption(view.chosen[0].type))
    else:
        st.caption("To see each instance, run the shipper with `--rows`.")
    clock = frame.clock(zone, now_ms)
    if view.rows:
        frame.table(tables.sums(view.rows, clock), key="sums-table")
    if view.own_rows:
        with st.expander(f"The reporter's own metrics ({len(view.own_rows)})", expanded=not view.rows):
            frame.table(tables.sums(view.own_rows, clock), key="own-sums-table")
    if view.left_out:
        st.caption(f"{view.left_out:,} more metrics are in the store; the table has the first by name.")
    if view.events:
        st.markdown("**Events**")
        frame.table(tables.events(view.events, clock), key="events-table")


def draw_twice(view: SumsView, found: Twice | None) -> None:
    """Processed twice: the formula with its numbers, over time, and how far the positions got."""
    if found is None:
        st.info(
            f"**{literal(view.app or 'This app')}** reports no positions of the counter "
            f"{literal(view.metric or 'that was chosen')}, so records that were processed twice can't be found. "
            "Choose the counter of processed records, and count with `ConsumerProgress`, or set "
            "`registry.position(topic, partition, name='NAME.position')` together with the counter NAME.",
            icon=":material/search_off:",
        )
        return
    columns = st.columns(3)
    columns[0].metric(f"Processed: {literal(view.metric)}", units.number(found.processed), **frame.TILE)
    columns[1].metric("Different records: offsets covered", units.number(found.covered), **frame.TILE)
    columns[2].metric(
        "Processed twice",
        units.number(found.number),
        "processed less covered",
        delta_color="off",
        delta_arrow="off",
        **frame.TILE,
    )
    if found.number < 0:
        st.warning(
            "Fewer records were counted than offsets were passed: the counter counts something else, or offsets hold "
            "no record (transaction markers, compaction).",
            icon=":material/warning:",
        )
    frame.chart(
        "Processed twice over time, records",
        draw([found.over_time], *view.over_time.period_ms, until_ms=view.until_ms),
        step=True,
        whole=True,
        key="twice-chart",
        events=view.events,
    )
    frame.table(tables.covered(found.partitions), key="covered-table")
    st.caption(
        "Consumers report, in one snapshot, how many records they processed and their positions. Records in flight are "
        "not counted. Records processed since a consumer's last report are not shown yet."
    )


def _tiles(view: SumsView) -> None:
    first = view.chosen[0] if view.chosen else None
    value = first.value if first else None
    growth = rate(value, window_ms=RATE_MS, at_ms=view.until_ms) if value else None
    more = f" ({literal(first.label)})" if first and len(view.chosen) > 1 else ""
    gauge = first is not None and first.type in GAUGES
    living = first.line("instances").last if first else None
    name = f"{literal(view.metric or units.NOTHING)}{more}"
    tiles = {
        counted(first.type if first else None, name): units.number(value.last if value else None),
        "Rate, last minute": units.per_second(None if gauge else growth),
        "Living instances": units.number(living),
    }
    if first is not None and first.type in DISTRIBUTIONS:
        tiles[f"Mean of {name}"] = mean_text(first.type, first.mean) or units.NOTHING
    for column, (title, text) in zip(st.columns(len(tiles)), tiles.items(), strict=True):
        column.metric(title, text, **frame.TILE)
