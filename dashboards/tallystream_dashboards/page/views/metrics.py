"""Draw the view of sums, with one metric over time and by instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from tallystream_dashboards import formatting
from tallystream_dashboards.data import instances
from tallystream_dashboards.data.sums import DISTRIBUTIONS, GAUGES, PERCENTILES, counted, noun, value_text
from tallystream_dashboards.page import components, tables
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.url_state import options

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_dashboards.page.metrics_data import MetricsView


def metric_key(app: str | None) -> str:
    """Return the key of the metric in the session state. Each app has its own, since a browser keeps a key's value."""
    return f"metric-of-{app}"


def _choose(view: MetricsView) -> None:
    left, right = st.columns(2)
    apps, names = options(view.apps, view.app), options(view.names, view.metric)
    left.selectbox("App", apps, key="app", index=components.index(apps, view.app))
    with right.container(key="metric"):
        st.selectbox("Metric", names, key=metric_key(view.app), index=components.index(names, view.metric))


def draw_metrics(view: MetricsView, *, now_ms: int, zone: tzinfo) -> None:
    """Draw the choices, one metric over time, its living instances, each instance, and all newest sums of the app."""
    _choose(view)
    _tiles(view)
    clock = components.clock(zone, now_ms)
    if view.of_app is not None:
        since_ms = view.of_app.silent_since_ms
        since = "" if since_ms is None else f" since {clock(since_ms)}"
        st.caption(f"Instances of {literal(view.of_app.name)}: {view.of_app.text}{since}")
    if not view.over_time.lines:
        st.info(f"No points of {literal(view.metric or 'any metric')} in this store yet.", icon=":material/search_off:")
        return
    # A count begins at 0.
    is_count = view.chosen[0].type not in (*GAUGES, "position")
    left, right = st.columns(2)
    with left:
        components.chart(
            f"{noun(view.chosen[0].type)} over time",
            view.over_time,
            step=True,
            zero=is_count and view.over_time.began,
            key="sum-chart",
            events=view.events,
        )
    with right:
        if view.rates.lines:
            components.chart("Rate over time, a second", view.rates, zero=True, key="rate-chart", events=view.events)
    if view.percentiles.lines:
        components.chart("Percentiles over time", view.percentiles, step=True, zero=True, key="percentiles-chart")
    components.chart("Living instances over time", view.instances, step=True, integers=True, key="instances-chart")
    if view.by_instance.lines:
        components.chart(
            "By instance",
            view.by_instance,
            step=True,
            zero=is_count and view.by_instance.began,
            key="instance-chart",
            events=view.events,
        )
        st.caption(instances.caption(view.chosen[0].type))
    else:
        st.caption("To see each instance, run the shipper with `--rows`.")
    if view.metrics:
        components.table(
            tables.sums(view.metrics, clock, at_ms=view.until_ms),
            caption="Sums of the app",
            key="sums-table",
        )
    if view.own_metrics:
        with st.expander(f"The reporter's own metrics ({len(view.own_metrics)})", expanded=not view.metrics):
            components.table(
                tables.sums(view.own_metrics, clock, at_ms=view.until_ms),
                caption="The reporter's own metrics",
                key="own-sums-table",
            )
    components.left_out(view.left_out)
    if view.events:
        components.table(tables.events(view.events, clock), caption="Events", key="events-table")


def _tiles(view: MetricsView) -> None:
    first = view.chosen[0] if view.chosen else None
    value = first.value if first else None
    label = f" ({literal(first.label)})" if first and len(view.chosen) > 1 else ""
    instance_count = first.line("instances").last if first else None
    name = f"{literal(view.metric or formatting.DASH)}{label}"
    tiles = {
        counted(first.type if first else None, name): formatting.number(value.last if value else None),
        "Rate, last minute": formatting.per_second(first.rate(view.until_ms) if first else None),
        "Living instances": formatting.number(instance_count),
    }
    if first is not None and first.type in DISTRIBUTIONS:
        tiles["Mean"] = value_text(first.type, first.mean) or formatting.DASH
        texts = [value_text(first.type, first.percentile(one)) or formatting.DASH for one in PERCENTILES]
        tiles[", ".join(PERCENTILES)] = ", ".join(texts)
    for column, (title, text) in zip(st.columns(len(tiles)), tiles.items(), strict=True):
        column.metric(title, text, **components.TILE)
