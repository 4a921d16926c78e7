"""Charts: rows for the browser, and a specification that stays the same from one refresh to the next.

The data travel beside the specification, so that a refresh moves the lines and does not draw the chart anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream.dashboards.page.lines import Line
    from tallystream.dashboards.page.reading_sums import Event

TIME, VALUE, SERIES = "time", "value", "series"

_CLOCK = (
    "hours(datum.value) + minutes(datum.value) + seconds(datum.value) == 0 ? timeFormat(datum.value, '%b %d') : "
    "timeFormat(datum.value, seconds(datum.value) ? '%H:%M:%S' : '%H:%M')"
)
"""Times of day with 24 hours, in the browser's zone, and the date at midnight."""


def frame(lines: Iterable[Line]) -> pd.DataFrame:
    """Return one row a point: time (UTC), value (a float, NaN for a gap) and the series' label."""
    points = [
        (time, value, line.label) for line in lines for time, value in zip(line.times_ms, line.values, strict=True)
    ]
    table = pd.DataFrame(points, columns=[TIME, VALUE, SERIES])
    table[TIME] = pd.to_datetime(table[TIME], unit="ms", utc=True)
    table[VALUE] = table[VALUE].astype("float64")
    return table


def spec(
    title: str, *, step: bool, whole: bool = False, legend: bool = True, events: Sequence[Event] = ()
) -> dict[str, Any]:
    """Return a Vega-Lite specification of lines over time; `step`: a value holds until the next one.

    Each of the `events` is a thin vertical line that says what happened.
    """
    base = alt.Chart(alt.NamedData("rows"))
    near = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", fields=[TIME], empty=False
    )
    axis = alt.Axis(format=",d" if whole else ",.3~f", tickMinStep=1 if whole else 0, tickCount=5, title=None)
    x = alt.X(f"{TIME}:T", title=None, axis=alt.Axis(tickCount=6, labelOverlap=True, grid=False, labelExpr=_CLOCK))
    # Without this nothing but zeros would be drawn in the middle, over an axis of negative numbers.
    floor = alt.Scale(zero=True, nice=True, domain={"unionWith": [0, 1]}) if whole else alt.Scale(zero=False, nice=True)
    y = alt.Y(f"{VALUE}:Q", axis=axis, scale=floor)
    color = alt.Color(
        f"{SERIES}:N",
        legend=alt.Legend(orient="bottom", title=None, labelLimit=320, columns=3) if legend else None,
    )
    lines = base.mark_line(interpolate="step-after" if step else "linear", strokeWidth=2).encode(x=x, y=y, color=color)
    tooltip = [
        alt.Tooltip(f"{SERIES}:N", title="series"),
        alt.Tooltip(f"{VALUE}:Q", title=title, format=",.10~g"),
        alt.Tooltip(f"{TIME}:T", title="time", format="%Y-%m-%d %H:%M:%S"),
    ]
    # One layer both catches the pointer and marks what it is near: a layer of its own for the mark would mostly be
    # empty, and Vega warns about empty layers at every refresh.
    points = (
        base.mark_point(filled=True, size=70)
        .encode(
            x=x, y=y, color=color, tooltip=tooltip, opacity=alt.when(near).then(alt.value(1)).otherwise(alt.value(0))
        )
        .add_params(near)
    )
    layers: dict[str, Any] = alt.layer(lines, points).properties(height=260).to_dict(validate=True)
    layers.pop("data", None)
    for layer in layers["layer"]:
        layer.pop("data", None)
    # Events are few: they stand in the specification, which changes only when there is a new one.
    if events:
        layers["layer"].insert(0, _marks(events))
    return layers


def _marks(events: Sequence[Event]) -> dict[str, Any]:
    return {
        "data": {"values": [{TIME: event.ts_ms, "what": event.text} for event in events]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1, "color": "#d9822b", "opacity": 0.8},
        "encoding": {
            "x": {"field": TIME, "type": "temporal"},
            "tooltip": [
                {"field": "what", "type": "nominal", "title": "event"},
                {"field": TIME, "type": "temporal", "title": "time", "format": "%Y-%m-%d %H:%M:%S"},
            ],
        },
    }
