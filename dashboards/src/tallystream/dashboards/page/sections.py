"""The parts of the page, from top to bottom: each takes a view (pure data) and draws it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from tallystream.dashboards import units
from tallystream.dashboards.lag.verdict import Verdict
from tallystream.dashboards.lag.wording import age
from tallystream.dashboards.page import charts, tables
from tallystream.dashboards.page.lines import rate
from tallystream.dashboards.page.selection import Selection, options

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    import pandas as pd

    from tallystream.dashboards.page.reading import Drawn, LagView, SumsView

ALL_GROUPS = "All groups"
SILENT_MS = 150_000
"""The slowest collector writes every minute: older lag than this is news by itself."""
RATE_MS = 60_000

_TILE: Any = {"border": True, "height": "stretch"}

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M2 14V9h2v5zm5 0V5h2v9zm5 0V2h2v12z' fill='%230b6bcb'/%3E%3C/svg%3E"
)
"""The page's sign, inline: Streamlit would fetch one of its own from the internet."""

STYLE = """<style>
.stMainBlockContainer { padding-top: 2.2rem; padding-bottom: 2rem; max-width: 1500px; }
[data-testid="stMetricValue"] { font-variant-numeric: tabular-nums; }
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
</style>"""
"""Narrow margins, digits of one width, and no fading while the page refreshes."""


def selected(asked: Selection, period: str) -> Selection:
    """Return what to show: what the widgets say, before that what the address asks for."""
    state = st.session_state
    group = state.get("group", asked.group)
    return replace(
        asked,
        range=period,
        app=state.get("app", asked.app),
        metric=state.get("metric", asked.metric),
        group=None if group == ALL_GROUPS else group,
    )


def as_of(sums: SumsView, lag: LagView, *, now_ms: int, zone: tzinfo, every: float) -> None:
    """Say how old the newest data are, and warn when nothing has come for too long."""
    newest = max(sums.as_of_ms or 0, lag.as_of_ms or 0)
    if newest:
        age = units.duration((now_ms - newest) / 1000)
        st.caption(
            f"Data as of **{units.clock(newest, zone, now_ms=now_ms)}** · {age} ago · refreshes every {every:g} s"
        )
    if lag.as_of_ms is not None and now_ms - lag.as_of_ms > SILENT_MS:
        age = units.duration((now_ms - lag.as_of_ms) / 1000)
        st.warning(
            f"No lag has been collected for {age}: what stands below is history. "
            "Look whether the collector runs: `tallystream status`.",
            icon=":material/schedule:",
        )


def empty() -> None:
    """Say what to do when the store has no points at all."""
    st.info(
        "**The store is there, and empty.** Sums appear as soon as an application reports and the aggregator and the "
        "shipper run; lag appears as soon as the collector runs.\n\n"
        "- start everything: `tallystream up`, or see it at work: `tallystream demo --keep`\n"
        "- see what runs: `tallystream status`",
        icon=":material/hourglass_empty:",
    )


def tiles(sums: SumsView, lag: LagView) -> None:
    """The four numbers that one looks at first."""
    worst = next((group for group in lag.groups if group.lag is not None and not group.gone), None)
    first = sums.chosen[0] if sums.chosen else None
    value = first.value if first else None
    growth = rate(value, window_ms=RATE_MS, at_ms=sums.until_ms) if value else None
    columns = st.columns(4)
    name = sums.metric or units.NOTHING
    more = f" ({first.label})" if first and len(sums.chosen) > 1 else ""
    columns[0].metric(f"Sum of {name}{more}", units.number(value.last if value else None), **_TILE)
    gauge = first is not None and first.type in ("gauge", "updown")
    columns[1].metric("Rate, last minute", units.per_second(None if gauge else growth), **_TILE)
    living = first.line("instances").last if first else None
    columns[2].metric("Living instances", units.number(living), **_TILE)
    if worst is None:
        columns[3].metric("Worst lag", units.NOTHING, **_TILE)
        return
    verdict = lag.states[worst.group].judgement.verdict
    behind = f"{verdict.name} · {age(lag.states[worst.group].seconds)} old"
    columns[3].metric(
        f"Worst lag: {worst.group}",
        units.number(worst.lag),
        behind,
        delta_color=_COLORS[verdict],
        delta_arrow="off",
        **_TILE,
    )


def draw_sums(view: SumsView, *, now_ms: int, zone: tzinfo) -> None:
    """One metric over time, its living instances, and the newest sum of every metric of the app."""
    st.subheader("Sums", anchor=False)
    left, right = st.columns(2)
    apps, names = options(view.apps, view.app), options(view.names, view.metric)
    left.selectbox("App", apps, key="app", index=_index(apps, view.app), on_change=_forget_metric)
    right.selectbox("Metric", names, key="metric", index=_index(names, view.metric))
    if not view.over_time.lines:
        st.info(f"No points of {view.metric or 'any metric'} in this store yet.", icon=":material/search_off:")
        return
    wide, narrow = st.columns([2, 1])
    with wide:
        _chart("Sum over time", view.over_time, step=True, key="sum-chart")
    with narrow:
        _chart("Living instances over time", view.instances, step=True, whole=True, key="instances-chart")
    _table(tables.sums(view.rows, _clock(zone, now_ms)), key="sums-table")
    if view.left_out:
        st.caption(f"{view.left_out:,} more metrics are in the store; a page shows the first by name.")


def draw_lag(view: LagView, selection: Selection, *, now_ms: int, zone: tzinfo) -> None:
    """The lag of every group, worst first, or of one group's partitions."""
    st.subheader("Lag", anchor=False)
    if not view.groups:
        st.info(
            "No lag has been collected yet. Start the collector: `tallystream lag collect`.",
            icon=":material/search_off:",
        )
        return
    names = [ALL_GROUPS, *options((row.group for row in view.groups), selection.group)]
    st.selectbox("Consumer group", names, key="group", index=_index(names, selection.group))
    what = f"Lag of {selection.group} by partition, records" if selection.group else "Lag by group, records"
    _chart(what, view.drawn, step=False, whole=True, key="lag-chart")
    clock = _clock(zone, now_ms)
    if selection.group:
        _table(tables.partitions(view.partitions, view.states.get(selection.group), clock), key="partitions-table")
    else:
        _table(tables.groups(view.groups, view.states, clock), key="groups-table")


_COLORS: dict[Verdict, Literal["green", "orange", "red", "gray"]] = {
    Verdict.OK: "green",
    Verdict.NOTFOUND: "gray",
    Verdict.WARN: "orange",
    Verdict.REWIND: "red",
    Verdict.STALL: "red",
    Verdict.STOP: "red",
    Verdict.ERR: "red",
}

_COLUMNS = {
    "Verdict": st.column_config.MultiselectColumn(
        options=[verdict.name for verdict in _COLORS], color=list(_COLORS.values()), width="small"
    ),
    "Why": st.column_config.TextColumn(width="large"),
    **{name: st.column_config.NumberColumn(format="localized") for name in ("Lag", "Committed", "End")},
    **{name: st.column_config.TextColumn(alignment="right") for name in ("Sum", "Mean")},
    "Trend": st.column_config.AreaChartColumn(y_min=0),
}


def _table(table: pd.DataFrame, *, key: str) -> None:
    with st.container(key=key):
        st.dataframe(
            table,
            hide_index=True,
            placeholder=units.NOTHING,
            key=f"{key}-data",
            column_config={name: column for name, column in _COLUMNS.items() if name in table},
        )


def _chart(title: str, drawn: Drawn, *, step: bool, key: str, whole: bool = False) -> None:
    st.markdown(f"**{title}**")
    # Data beside the specification, not in it: the same chart takes new rows and nothing flickers.
    st.vega_lite_chart(
        charts.frame(drawn.lines), charts.spec(title, step=step, whole=whole, legend=len(drawn.lines) > 1), key=key
    )
    if drawn.left_out:
        st.caption(f"The {len(drawn.lines)} largest lines are drawn; {drawn.left_out:,} more are not.")


def _forget_metric() -> None:
    # The metric of another app is rarely one of this app's: begin with the first there is.
    st.session_state.pop("metric", None)
    st.query_params.pop("metric", None)


def _index(choices: list[str], wanted: str | None) -> int:
    return choices.index(wanted) if wanted in choices else 0


def _clock(zone: tzinfo, now_ms: int) -> Callable[[int], str]:
    return lambda time_ms: units.clock(time_ms, zone, now_ms=now_ms)
