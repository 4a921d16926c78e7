"""The script that Streamlit runs for every visitor. The fragment `_body` runs again at every refresh."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_store
from tallystream_dashboards.data.groups import GroupsView, GroupView
from tallystream_dashboards.data.home import Home
from tallystream_dashboards.data.lines import RANGES
from tallystream_dashboards.formatting import duration
from tallystream_dashboards.page import banner, components
from tallystream_dashboards.page import settings as page_settings
from tallystream_dashboards.page.compare_data import CompareView
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.metrics_data import MetricsView
from tallystream_dashboards.page.reading import read_page
from tallystream_dashboards.page.url_state import VIEWS, Selection, chosen_moment, parse, refresh_every
from tallystream_dashboards.page.views import compare, home, lag, metrics, runbook

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_dashboards.page.reading import PageData
    from tallystream_dashboards.page.settings import PageSettings


def main() -> None:
    """Draw the page."""
    settings = page_settings.served
    if settings is None:
        raise ConfigError("the page", "streamlit run", "start it with `tallystream page`, which passes the store")
    st.set_page_config(page_title="Tallystream", page_icon=components.ICON, layout="wide")
    st.html(f"<style>{components.STYLE}</style>")
    selection = parse(st.query_params)
    title, moment, period = st.columns([7, 3, 6], vertical_alignment="bottom")
    title.title("Tallystream", anchor=False)
    at = _moment(moment, selection)
    chosen_range = period.segmented_control(
        "Period",
        list(RANGES),
        default=selection.range,
        key="range",
        required=True,
        label_visibility="collapsed",
        width="stretch",
    )
    view = st.segmented_control(
        "View",
        list(VIEWS),
        default=selection.view,
        format_func=VIEWS.__getitem__,
        key="view",
        required=True,
        label_visibility="collapsed",
    )
    every = refresh_every(settings.refresh_s, RANGES[chosen_range])
    # History does not change, so it is read once.
    fragment = st.fragment(_body, run_every=None if at else every)
    fragment(settings, replace(selection, view=view, range=chosen_range, at=at), every)


def _moment(column: Any, selection: Selection) -> str | None:
    """Draw the choice of a time in the past and return the chosen one; None: now."""
    with column.popover("Time" if selection.at is None else selection.at.replace("T", " "), width="stretch"):
        at_ms = selection.at_ms
        value = None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None)
        with st.container(horizontal=True, gap="xsmall"):
            for name, ago_s in RANGES.items():
                st.button(f"{name} ago", on_click=_go_to, args=(ago_s,), key=f"ago-{name}")
        chosen = st.datetime_input("The period ends at (UTC)", value=value, key="moment", step=60)
        if st.button("Back to now", disabled=chosen is None, on_click=_now, key="back-to-now"):
            return None
    return None if chosen is None else chosen_moment(chosen, selection.at)


def _go_to(ago_s: int) -> None:
    then = datetime.now(UTC).replace(tzinfo=None, second=0, microsecond=0) - timedelta(seconds=ago_s)
    st.session_state["moment"] = then


def _now() -> None:
    st.session_state["moment"] = None
    st.query_params.pop("at", None)


def _body(settings: PageSettings, selection: Selection, every: float) -> None:
    selection = _with_widgets(selection)
    zone = _zone(st.context.timezone)
    try:
        # Nothing is read while the page is drawn, so its parts agree.
        with closing(open_store(settings.store)) as reader:
            data = read_page(reader, selection, selection.period(round(time.time() * 1000)))
    except (SinkUnavailableError, ConfigError) as error:
        _unreachable(settings, error, every)
        if selection.view != "runbook":
            return
    else:
        selection = data.selection
        banner.draw_banner(data, zone=zone)
        components.as_of(data, zone=zone, every=every)
        _draw(data, zone=zone)
    if selection.view == "runbook":
        runbook.draw(selection.section)
    params = selection.params()
    if st.query_params.to_dict() != params:
        st.query_params.from_dict(params)


def _zone(name: str | None) -> tzinfo:
    """Return the browser's time zone; UTC if its name is not known here: browsers learn of new zones earlier."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _draw(data: PageData, *, zone: tzinfo) -> None:
    """Draw the chosen view, or why there is nothing to draw."""
    selection, view, now_ms = data.selection, data.view, data.period.end_ms
    if isinstance(view, MetricsView) and view.as_of_ms is not None:
        metrics.draw_metrics(view, now_ms=now_ms, zone=zone)
    elif isinstance(view, CompareView):
        compare.draw(view, data.period, zone=zone)
    elif isinstance(view, Home):
        home.draw_home(view, selection, now_ms=now_ms, zone=zone)
    elif isinstance(view, GroupsView):
        lag.draw_groups(data.groups.states, view, now_ms=now_ms, zone=zone)
    elif isinstance(view, GroupView) and selection.group is not None:
        lag.draw_group(data.groups.states, selection.group, view, now_ms=now_ms, zone=zone)
    elif selection.view == "groups" and data.has_points:
        components.no_lag()
    elif selection.view != "runbook":
        components.empty_store()


def _with_widgets(selection: Selection) -> Selection:
    """Return the selection of the widgets; before a widget is drawn, that of the page's address."""
    state, address = st.session_state, parse(st.query_params)
    group = state.get("group", selection.group)
    selection = replace(
        selection, group=None if group == lag.ALL else group, from_other_view=address.view != selection.view
    )
    if selection.view == "compare":
        return compare.chosen(address, selection)
    app = state.get("app", address.app)
    # Another app's metric is usually not a metric of this app.
    metric = address.metric if app == address.app else None
    return replace(selection, app=app, metric=state.get(metrics.metric_key(app), metric))


def _unreachable(settings: PageSettings, error: Exception, every: float) -> None:
    st.error(
        f"**The store can't be read.** {literal(error)}\n\nStore: {literal(settings.store.spec)}. "
        "Check that it runs and that this page may read it (`tallystream status`). "
        f"The page tries again every {duration(max(1, every))}.",
        icon=":material/cloud_off:",
    )


main()
