"""The script that Streamlit runs for every visitor. The fragment `_body` runs again at every refresh."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import streamlit as st

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_dashboards.formatting import duration
from tallystream_dashboards.lag.reader import last_round_ms
from tallystream_dashboards.page import components, serving
from tallystream_dashboards.page.data.read_lag import read_group_view, read_groups_view
from tallystream_dashboards.page.data.read_pipeline import read_pipeline
from tallystream_dashboards.page.data.read_sums import read_duplicates, read_sums
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.url_state import RANGES, VIEWS, Selection, chosen_moment, parse, refresh_every
from tallystream_dashboards.page.views import groups as groups_view
from tallystream_dashboards.page.views import metrics, pipeline

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.page.settings import PageSettings


def main() -> None:
    """Draw the page."""
    settings = serving.settings
    if settings is None:
        raise ConfigError("the page", "streamlit run", "start it with `tallystream page`, which passes the store")
    st.set_page_config(page_title="Tallystream", page_icon=components.ICON, layout="wide")
    st.html(components.STYLE)
    asked = parse(st.query_params)
    title, moment, period = st.columns([7, 3, 6], vertical_alignment="bottom")
    title.title("Tallystream", anchor=False)
    at = _moment(moment, asked)
    chosen = period.segmented_control(
        "Period",
        list(RANGES),
        default=asked.range,
        key="range",
        required=True,
        label_visibility="collapsed",
        width="stretch",
    )
    view = st.segmented_control(
        "View",
        list(VIEWS),
        default=asked.view,
        format_func=VIEWS.__getitem__,
        key="view",
        required=True,
        label_visibility="collapsed",
    )
    every = refresh_every(settings.refresh_s, RANGES[chosen])
    # History does not change, so it is read once.
    st.fragment(_body, run_every=None if at else every)(replace(asked, view=view, range=chosen, at=at), every)


def _moment(column: object, asked: Selection) -> str | None:
    """Draw the choice of a time in the past and return the chosen one; None: now."""
    with column.popover("Time" if asked.at is None else asked.at.replace("T", " "), width="stretch"):  # type: ignore[attr-defined]  # a column
        known = asked.at_ms
        value = None if known is None else datetime.fromtimestamp(known / 1000, UTC).replace(tzinfo=None)
        found = st.datetime_input("The period ends at (UTC)", value=value, key="moment", step=60)
        if st.button("Back to now", disabled=found is None, on_click=_now, key="back-to-now"):
            return None
    return None if found is None else chosen_moment(found, asked.at)


def _now() -> None:
    st.session_state["moment"] = None
    st.query_params.pop("at", None)


def _body(asked: Selection, every: float) -> None:
    settings = serving.settings
    if settings is None:
        return
    selection = _selected(asked)
    now_ms = selection.at_ms or round(time.time() * 1000)
    zone = ZoneInfo(st.context.timezone) if st.context.timezone else UTC
    try:
        reader = open_reader(settings.store)
        try:
            shown = _draw(reader, selection, now_ms=now_ms, zone=zone, every=every)
        finally:
            reader.close()
    except (SinkUnavailableError, ConfigError) as error:
        _unreachable(settings, error, every)
        return
    wanted = shown.params()
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)


def _draw(reader: PointReader, selection: Selection, *, now_ms: int, zone: tzinfo, every: float) -> Selection:
    """Draw the chosen view, and return the selection that it shows."""
    past, ahead_ms = selection.at is not None, selection.ahead_ms
    if selection.view in ("metrics", "twice"):
        alive_ms = last_round_ms(reader, at_ms=now_ms + ahead_ms)
        view = read_sums(reader, selection, now_ms=now_ms, until_ms=alive_ms)
        components.as_of("A sum last changed at", view.as_of_ms, now_ms=now_ms, zone=zone, every=every, past=past)
        if view.as_of_ms is None:
            components.empty()
            return selection
        metrics.choose(view, selection.view)
        if selection.view == "metrics":
            metrics.draw_metrics(view, now_ms=now_ms, zone=zone)
        else:
            metrics.draw_duplicates(view, read_duplicates(reader, view, selection, now_ms=now_ms))
        return replace(selection, app=view.app, metric=view.metric, carried=False)
    groups = read_groups_view(reader, at_ms=now_ms, range_s=selection.range_s, ahead_ms=ahead_ms)
    if groups.as_of_ms is None:
        _nothing(reader)
        return selection
    components.as_of("Data as of", groups.as_of_ms, now_ms=now_ms, zone=zone, every=every, past=past)
    components.silent(groups.as_of_ms, now_ms=now_ms)
    if selection.view == "pipeline":
        hops, delays = read_pipeline(reader, groups, at_ms=now_ms, range_s=selection.range_s, ahead_ms=ahead_ms)
        pipeline.draw_pipeline(hops, delays)
        return selection
    groups_view.choose(groups.states, selection.group)
    if selection.group is None:
        groups_view.draw_groups(groups, now_ms=now_ms, zone=zone)
        return selection
    one = read_group_view(reader, selection.group, at_ms=now_ms, range_s=selection.range_s, ahead_ms=ahead_ms)
    groups_view.draw_group(selection.group, one, now_ms=now_ms, zone=zone)
    return selection


def _selected(asked: Selection) -> Selection:
    """Return the selection of the widgets; before a widget is drawn, that of the page's address."""
    state, now = st.session_state, parse(st.query_params)
    group = state.get("group", asked.group)
    app = state.get(metrics.app_key(asked.view), now.app)
    # Another app's metric is usually not a metric of this app.
    linked = now.metric if app == now.app else None
    return replace(
        asked,
        app=app,
        metric=state.get(metrics.metric_key(asked.view, app), linked),
        carried=now.view != asked.view,
        group=None if group == groups_view.ALL else group,
    )


def _nothing(reader: PointReader) -> None:
    if reader.measurements():
        components.no_lag()
    else:
        components.empty()


def _unreachable(settings: PageSettings, error: Exception, every: float) -> None:
    st.error(
        f"**The store can't be read.** {literal(error)}\n\nStore: {literal(settings.store.spec)}. "
        "Check that it runs and that this page may read it (`tallystream status`). "
        f"The page tries again every {duration(max(1, every))}.",
        icon=":material/cloud_off:",
    )


main()
