"""Draw the view of what was sent and processed: the numbers of `tallystream compare`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from tallystream_dashboards import formatting
from tallystream_dashboards.page import components, tables
from tallystream_dashboards.page.compare_data import over_time
from tallystream_dashboards.page.html_table import literal
from tallystream_dashboards.page.url_state import options

if TYPE_CHECKING:
    from datetime import tzinfo

    from tallystream_dashboards.data.compare import Comparison
    from tallystream_dashboards.data.lines import Period
    from tallystream_dashboards.page.compare_data import CompareView
    from tallystream_dashboards.page.url_state import Selection


def chosen(address: Selection, selection: Selection) -> Selection:
    """Return the selection of the widgets; before a widget is drawn, that of the page's address."""
    state = st.session_state
    app = state.get("compare-app", address.app)
    # What belongs to another app or counter is usually not compared with this one.
    metric = state.get(_key("metric", app), address.metric if app == address.app else None)
    same = (app, metric) == (address.app, address.metric)
    sent = state.get(_key("sent", app, metric), address.sent if same else None)
    return replace(selection, app=app, metric=metric, sent=sent)


def draw(view: CompareView, period: Period, *, zone: tzinfo) -> None:
    """Draw the choices, the numbers, each with its certainty, why they are not exact, and the offsets by partition."""
    _choose(view)
    if view.compared is None:
        st.info(
            f"**{literal(view.selection.app or 'No app')}** reports no positions of the counter "
            f"{literal(view.selection.metric or 'that was chosen')}, so what became of its records is not known. "
            "Count what is processed with `ConsumerProgress` and what is sent with `ProducerProgress`.",
            icon=":material/search_off:",
        )
        return
    stored = view.compared.stored
    as_of_ms, as_of = stored.as_of(period.end_ms), stored.text(period.end_ms, zone)
    if as_of_ms is None:
        st.warning(literal(as_of))
        return
    now = view.compared.at(as_of_ms)
    _tiles(now)
    st.markdown(literal(f"{as_of} {view.compared.still_text(as_of_ms, zone)}"))
    for sentence in now.why:
        st.caption(literal(sentence))
    if now.partitions:
        components.table(tables.compared(now.partitions), caption="Offsets", key="compare-table")
    components.chart(
        "Lost, in flight and twice over time, records",
        over_time(view.compared, period),
        step=True,
        integers=True,
        key="compare-chart",
    )


def _key(name: str, *of: str | None) -> str:
    """Return the key of a choice in the session state. It has what it depends on: a browser keeps a key's value."""
    return f"compare-{name}-of-{'/'.join(map(str, of))}"


def _choose(view: CompareView) -> None:
    app, metric, sent = view.selection.app, view.selection.metric, view.selection.sent
    apps = options({key.app for key in view.counters}, app)
    names = options((key.name for key in view.counters if key.app == app), metric)
    senders = [*view.senders, *([sent] if sent and sent not in view.senders else [])]
    columns = st.columns(3)
    columns[0].selectbox("App", apps, key="compare-app", index=components.index(apps, app))
    columns[1].selectbox("Processed", names, key=_key("metric", app), index=components.index(names, metric))
    index = components.index(senders, sent)
    columns[2].selectbox("Sent", senders, key=_key("sent", app, metric), index=index)


def _tiles(now: Comparison) -> None:
    tiles = [
        ("Sent", now.sent, now.sent.known),
        ("Processed", now.counted, now.counted.known),
        ("Lost", now.lost, now.lost.known),
        ("In flight", now.in_flight, now.in_flight.known),
        ("Counted twice", now.twice, now.twice.known),
        ("Processed twice at most", now.processed_twice, now.processed_twice.most),
    ]
    for column, (title, one, value) in zip(st.columns(len(tiles)), tiles, strict=True):
        number = formatting.number(value)
        column.metric(title, number, str(one), delta_color="off", delta_arrow="off", **components.TILE)
