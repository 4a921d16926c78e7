"""Draw the views of lag: all consumer groups, and one group by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from tallystream_dashboards import formatting
from tallystream_dashboards.data.groups import role
from tallystream_dashboards.lag import time_lag
from tallystream_dashboards.lag.status import Status
from tallystream_dashboards.page import components, tables
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.url_state import options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

    from tallystream_dashboards.data.groups import GroupsView, GroupView
    from tallystream_dashboards.lag.catch_up import CatchUp
    from tallystream_dashboards.lag.state import GroupState

Row = TypeVar("Row")

ALL = "All groups"
MAX_PARTITIONS = 500
"""How many partitions a table shows, the worst ones. A filter finds the others."""


def _choose(states: Sequence[GroupState], selected: str | None) -> None:
    """Draw the choice of a group, whose key in the session state is `group`."""
    names = [ALL, *options((state.group for state in states), selected)]
    st.selectbox("Consumer group", names, key="group", index=components.index(names, selected))


def worst_of(present: Sequence[GroupState]) -> GroupState | None:
    """Return the first group whose lag is known; one of Tallystream's own groups only if it is WARN or worse."""
    return next(
        (
            state
            for state in present
            if state.lag is not None and (role(state.group) == "consumer" or state.evaluation.status > Status.NOTFOUND)
        ),
        None,
    )


def draw_groups(groups: Sequence[GroupState], view: GroupsView, *, now_ms: int, zone: tzinfo) -> None:
    """Draw all groups: the number of bad ones, the worst, the lag over time, and a table."""
    _choose(groups, None)
    present = [state for state in groups if not state.gone]
    _tiles(present, now_ms=now_ms)
    components.chart("Lag by group, records", view.chart, integers=True, key="lag-chart")
    states = _filtered(groups, lambda state: state.group, "part of a group's name")
    table = tables.groups(states, view.trends, components.clock(zone, now_ms), now_ms=now_ms)
    components.table(table, caption="Consumer groups", key="groups-table")
    st.caption("A group's partitions, rates and history: choose it above.")


def draw_group(groups: Sequence[GroupState], name: str, view: GroupView, *, now_ms: int, zone: tzinfo) -> None:
    """Draw one group: its status and reason, its lag by partition, rates and time lag over time, and its partitions."""
    _choose(groups, name)
    state = view.state
    if state is None:
        st.info(
            f"The store has no lag of the group **{literal(name)}** at this time. Check its name, that it has "
            "committed, and that the collector's `--include` matches it.",
            icon=":material/search_off:",
        )
        return
    _status(state, now_ms=now_ms, zone=zone)
    left, middle, right = st.columns(3)
    with left:
        components.chart("Lag by partition, records", view.by_partition, integers=True, key="lag-chart")
    with middle:
        components.chart("Produced and consumed, records a second", view.rates, zero=True, key="rates-chart")
    with right:
        components.chart(
            "Time lag, seconds: age of the oldest unread record", view.time_lag, zero=True, key="seconds-chart"
        )
    partitions = _filtered(state.partitions, lambda one: one.name, "topic/partition")
    table = tables.partitions(partitions[:MAX_PARTITIONS])
    components.table(table, caption="Partitions", key="partitions-table")
    if len(partitions) > MAX_PARTITIONS:
        st.caption(f"The worst {MAX_PARTITIONS:,} of {len(partitions):,} partitions; the filter finds the others.")


def _tiles(present: Sequence[GroupState], *, now_ms: int) -> None:
    columns = st.columns(4)
    counts = {status: sum(one.evaluation.status is status for one in present) for status in (Status.ERR, Status.WARN)}
    columns[0].metric(
        "Groups",
        formatting.number(len(present)),
        f"{counts[Status.ERR]} ERR · {counts[Status.WARN]} WARN",
        delta_color="red" if counts[Status.ERR] else "orange" if counts[Status.WARN] else "green",
        delta_arrow="off",
        **components.TILE,
    )
    worst = worst_of(present)
    if worst is None:
        columns[1].metric("Worst lag", formatting.DASH, **components.TILE)
        return
    status = worst.evaluation.status
    columns[1].metric(
        f"Worst: {literal(worst.group)}",
        worst.lag_text,
        f"{status.name}{tables.since(worst, now_ms)}",
        delta_color=components.COLORS[status],
        delta_arrow="off",
        **components.TILE,
    )
    columns[2].metric("Time lag", time_lag.text(worst.time_lag), **components.TILE)
    _catches_up(columns[3], worst.catch_up)


def _catches_up(column: Any, catch_up: CatchUp) -> None:
    """Draw how long a group takes to catch up. A tile is too narrow for `never at this rate` in one line."""
    label = "Catches up in" if catch_up.drain_low else "Catches up"
    time, _, rate = catch_up.drain.partition(" at ")
    column.metric(label, time, f"at {rate}" if rate else None, delta_color="off", delta_arrow="off", **components.TILE)


def _status(state: GroupState, *, now_ms: int, zone: tzinfo) -> None:
    status = state.evaluation.status
    message = literal(state.evaluation.reason)
    if state.gone:
        st.warning(f"**GONE** · {message}", icon=":material/person_off:")
    elif status is Status.ERR:
        st.error(f"**ERR{tables.since(state, now_ms)}** · {message}", icon=":material/error:")
    elif status is Status.WARN:
        st.warning(f"**WARN{tables.since(state, now_ms)}** · {message}", icon=":material/warning:")
    else:
        st.markdown(f":{components.COLORS[status]}-badge[{status.name}{tables.since(state, now_ms)}] {message}")
    columns = st.columns(5)
    columns[0].metric("Lag, records", state.lag_text, **components.TILE)
    columns[1].metric("Time lag", time_lag.text(state.time_lag), **components.TILE)
    _catches_up(columns[2], state.catch_up)
    rates = state.rates
    gray: Any = {"delta_color": "off", "delta_arrow": "off"}
    consumed = f"consumed {formatting.per_second(rates.consumed)}" if rates else None
    produced = formatting.per_second(rates.produced if rates else None)
    columns[3].metric("Produced", produced, consumed, **gray, **components.TILE)
    members: Any = {"delta": literal(state.broker_state) or None, **gray}
    columns[4].metric("Members", formatting.number(state.members), **members, **components.TILE)
    st.caption(f"Last seen {formatting.clock(state.seen_ms, zone, now_ms=now_ms)}")


def _filtered(rows: Sequence[Row], name: Callable[[Row], str], placeholder: str) -> list[Row]:
    """Return the rows whose name has the text in the filter, which a long table has."""
    if len(rows) <= tables.MAX_UNFILTERED:
        return list(rows)
    text = st.text_input("Filter", key="filter", placeholder=placeholder, label_visibility="collapsed")
    return [row for row in rows if text.lower() in name(row).lower()]
