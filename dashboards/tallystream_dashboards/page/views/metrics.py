"""Draw the view of sums, with one metric over time and by instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from tallystream_dashboards import formatting
from tallystream_dashboards.data import instances
from tallystream_dashboards.data.sums import DISTRIBUTIONS, GAUGES, PERCENTILES, counted, noun, value_text
from tallystream_dashboards.page import components, tables
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.url_state import options

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_dashboards.data.lines import ChartData
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
    _charts(view, view.chosen[0].type)
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


def _charts(view: MetricsView, type_: str) -> None:
    """Draw what there is of the chosen metric over time, two charts beside each other."""
    # A count begins at 0.
    is_count = type_ not in (*GAUGES, "position")
    began, of_instances = is_count and view.over_time.began, is_count and view.by_instance.began
    step, marked = {"step": True}, {"events": view.events}
    charts: list[tuple[str, ChartData, dict[str, Any]]] = [
        (f"{noun(type_)} over time", view.over_time, {"key": "sum-chart", "zero": began, **step, **marked}),
        ("Rate over time, a second", view.rates, {"key": "rate-chart", "zero": True, **marked}),
        ("Percentiles over time", view.percentiles, {"key": "percentiles-chart", "zero": True, **step}),
        ("Living instances over time", view.instances, {"key": "instances-chart", "integers": True, **step}),
        ("By instance", view.by_instance, {"key": "instance-chart", "zero": of_instances, **step, **marked}),
    ]
    shown = [one for one in charts if one[1].lines]
    for at in range(0, len(shown), 2):
        pair = shown[at : at + 2]
        for column, (title, data, how) in zip(st.columns(len(pair)), pair, strict=True):
            with column:
                components.chart(title, data, **how)
    if view.by_instance.lines:
        st.caption(instances.caption(type_))
    else:
        st.caption("To see each instance, run the shipper with `--rows`.")


def _tiles(view: MetricsView) -> None:
    first = view.chosen[0] if view.chosen else None
    value = first.value if first else None
    label = f" ({literal(first.label)})" if first and len(view.chosen) > 1 else ""
    instance_count = first.line("instances").last if first else None
    name = f"{literal(view.metric or formatting.DASH)}{label}"
    tiles = {
        counted(first.type if first else None, name): formatting.number(value.last if value else None),
        "Living instances": formatting.number(instance_count),
    }
    if first is not None and first.type not in GAUGES:
        tiles["Rate, last minute"] = formatting.per_second(first.rate(view.until_ms))
    if first is not None and first.type in DISTRIBUTIONS:
        tiles["Mean"] = value_text(first.type, first.mean) or formatting.DASH
        texts = [value_text(first.type, first.percentile(one)) or formatting.DASH for one in PERCENTILES]
        tiles[", ".join(PERCENTILES)] = ", ".join(texts)
    for column, (title, text) in zip(st.columns(len(tiles)), tiles.items(), strict=True):
        column.metric(title, text, **components.TILE)
