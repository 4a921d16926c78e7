"""The script that Streamlit runs for every visitor. The fragment `_body` runs again at every refresh."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_dashboards.data.groups import read_group_view, read_groups_now, read_groups_view
from tallystream_dashboards.data.home import read_home
from tallystream_dashboards.data.lines import RANGES
from tallystream_dashboards.formatting import duration
from tallystream_dashboards.page import banner, components
from tallystream_dashboards.page import settings as page_settings
from tallystream_dashboards.page.compare_data import read_compare
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.links import grafana_link
from tallystream_dashboards.page.metrics_data import read_metrics
from tallystream_dashboards.page.url_state import VIEWS, Selection, chosen_moment, parse, refresh_every
from tallystream_dashboards.page.views import compare, home, lag, metrics, runbook

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.groups import GroupsNow
    from tallystream_dashboards.data.lines import Period
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
        chosen = st.datetime_input("The period ends at (UTC)", value=value, key="moment", step=60)
        if st.button("Back to now", disabled=chosen is None, on_click=_now, key="back-to-now"):
            return None
    return None if chosen is None else chosen_moment(chosen, selection.at)


def _now() -> None:
    st.session_state["moment"] = None
    st.query_params.pop("at", None)


def _body(settings: PageSettings, selection: Selection, every: float) -> None:
    selection = _with_widgets(selection)
    period = selection.period(round(time.time() * 1000))
    zone = _zone(st.context.timezone)
    try:
        with closing(open_reader(settings.store)) as reader:
            drawn = _draw(reader, settings, selection, period, zone=zone, every=every)
    except (SinkUnavailableError, ConfigError) as error:
        _unreachable(settings, error, every)
        if selection.view != "runbook":
            return
        drawn = selection
    if drawn.view == "runbook":
        runbook.draw(drawn.section)
    params = drawn.params()
    if st.query_params.to_dict() != params:
        st.query_params.from_dict(params)


def _zone(name: str | None) -> tzinfo:
    """Return the browser's time zone; UTC if its name is not known here: browsers learn of new zones earlier."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _draw(
    reader: PointReader, settings: PageSettings, selection: Selection, period: Period, *, zone: tzinfo, every: float
) -> Selection:
    """Draw the top and the chosen view, and return the selection that it shows."""
    groups = read_groups_now(reader, period)
    observed = banner.draw_banner(reader, settings.store.spec, selection, period, groups, zone=zone)
    as_of = partial(
        components.as_of, groups.round_ms, now_ms=period.end_ms, zone=zone, every=every, past=selection.at is not None
    )
    if selection.view == "metrics":
        view = read_metrics(reader, selection, period, round_ms=groups.round_ms)
        shown = replace(selection, app=view.app, metric=view.metric, from_other_view=False)
        as_of(grafana=grafana_link(settings, shown))
        if view.as_of_ms is None:
            components.empty_store()
            return selection
        metrics.choose(view)
        metrics.draw_metrics(view, now_ms=period.end_ms, zone=zone)
        return shown
    if selection.view == "compare" and reader.measurements():
        compared = read_compare(reader, selection, period)
        as_of(grafana=grafana_link(settings, compared.selection))
        compare.draw(compared, period, zone=zone)
        return compared.selection
    as_of(grafana=grafana_link(settings, selection))
    if selection.view == "runbook":
        return selection
    if not reader.measurements():
        components.empty_store()
    elif selection.view == "home":
        home.draw_home(read_home(reader, observed.apps, period, round_ms=groups.round_ms), selection, zone=zone)
    elif groups.round_ms is None:
        components.no_lag()
    else:
        _draw_lag(reader, groups, selection, period, zone=zone)
    return selection


def _draw_lag(reader: PointReader, groups: GroupsNow, selection: Selection, period: Period, *, zone: tzinfo) -> None:
    lag.choose(groups.states, selection.group)
    if selection.group is None:
        lag.draw_groups(groups.states, read_groups_view(reader, groups, period), now_ms=period.end_ms, zone=zone)
    else:
        one = read_group_view(reader, selection.group, period)
        lag.draw_group(selection.group, one, now_ms=period.end_ms, zone=zone)


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
