"""Draw the view of sums, with one metric over time and by instance, and the view of records processed twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from tallystream_dashboards import formatting
from tallystream_dashboards.data import instances
from tallystream_dashboards.data.lines import chart_data
from tallystream_dashboards.data.sums import DISTRIBUTIONS, PERCENTILES, counted, noun, value_text
from tallystream_dashboards.page import components, tables
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.url_state import options

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_dashboards.data.duplicates import Duplicates
    from tallystream_dashboards.page.metrics_data import MetricsView


def app_key(view: str) -> str:
    """Return the key of a view's app in the session state. Views may offer different apps."""
    return "app" if view == "metrics" else f"{view}-app"


def metric_key(view: str, app: str | None) -> str:
    """Return the key of the metric in the session state. Each app has its own, since a browser keeps a key's value."""
    return f"{view}-metric-of-{app}"


def choose(view: MetricsView, name: str) -> None:
    """Draw the choices of the app and the metric of the view with this name."""
    left, right = st.columns(2)
    apps, names = options(view.apps, view.app), options(view.names, view.metric)
    left.selectbox("App", apps, key=app_key(name), index=components.index(apps, view.app))
    with right.container(key="metric"):
        st.selectbox("Metric", names, key=metric_key(name, view.app), index=components.index(names, view.metric))


def draw_metrics(view: MetricsView, *, now_ms: int, zone: tzinfo) -> None:
    """Draw one metric over time, its living instances, each instance, and the newest sum of each metric of the app."""
    _tiles(view)
    clock = components.clock(zone, now_ms)
    if view.of_app is not None:
        since_ms = view.of_app.silent_since_ms
        since = "" if since_ms is None else f" since {clock(since_ms)}"
        st.caption(f"Instances of {literal(view.of_app.name)}: {view.of_app.text}{since}")
    if not view.over_time.lines:
        st.info(f"No points of {literal(view.metric or 'any metric')} in this store yet.", icon=":material/search_off:")
        return
    left, right = st.columns(2)
    with left:
        components.chart(
            f"{noun(view.chosen[0].type)} over time", view.over_time, step=True, key="sum-chart", events=view.events
        )
    with right:
        if view.rates.lines:
            components.chart("Rate over time, a second", view.rates, key="rate-chart", events=view.events)
    if view.percentiles.lines:
        components.chart("Percentiles over time", view.percentiles, step=True, key="percentiles-chart")
    components.chart("Living instances over time", view.instances, step=True, integers=True, key="instances-chart")
    if view.by_instance.lines:
        components.chart("By instance", view.by_instance, step=True, key="instance-chart", events=view.events)
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
    if view.left_out:
        st.caption(f"{view.left_out:,} more metrics are in the store; the table has the first by name.")
    if view.events:
        components.table(tables.events(view.events, clock), caption="Events", key="events-table")


def draw_duplicates(view: MetricsView, duplicates: Duplicates | None) -> None:
    """Draw the records processed twice: the formula with its numbers, the result over time, and the positions."""
    if duplicates is None:
        st.info(
            f"**{literal(view.app or 'This app')}** reports no positions of the counter "
            f"{literal(view.metric or 'that was chosen')}, so how many records were processed twice is not known. "
            "Choose the counter of processed records, and count with `ConsumerProgress`, or set "
            "`registry.position(topic, partition, name='NAME.position')` together with the counter NAME.",
            icon=":material/search_off:",
        )
        return
    columns = st.columns(3)
    columns[0].metric(f"Processed: {literal(view.metric)}", formatting.number(duplicates.processed), **components.TILE)
    columns[1].metric("Different records: offsets covered", formatting.number(duplicates.covered), **components.TILE)
    columns[2].metric(
        "Processed twice",
        formatting.number(duplicates.count),
        "processed less covered",
        delta_color="off",
        delta_arrow="off",
        **components.TILE,
    )
    if duplicates.count < 0:
        st.warning(
            "The counter counted fewer records than there are offsets: it counts something else, or some offsets have "
            "no record (transaction markers, compaction).",
            icon=":material/warning:",
        )
    components.chart(
        "Processed twice over time, records",
        chart_data([duplicates.over_time], *view.over_time.period_ms, until_ms=view.until_ms),
        step=True,
        integers=True,
        key="twice-chart",
        events=view.events,
    )
    components.table(
        tables.covered_offsets(duplicates.partitions),
        caption="Offsets covered",
        key="covered-table",
    )
    st.caption(
        "Consumers report, in one snapshot, how many records they processed and their positions. Records in flight are "
        "not counted. Records processed since a consumer's last report are not shown yet."
    )


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
