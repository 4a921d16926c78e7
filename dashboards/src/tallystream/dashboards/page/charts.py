"""Charts: rows for the browser, and a specification that stays the same from one refresh to the next.

The data travel beside the specification, so that a refresh moves the lines and does not draw the chart anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.dashboards.page.lines import Line

TIME, VALUE, SERIES = "time", "value", "series"


def frame(lines: Iterable[Line]) -> pd.DataFrame:
    """Return one row a point: time (UTC), value (a float, NaN for a gap) and the series' label."""
    points = [
        (time, value, line.label) for line in lines for time, value in zip(line.times_ms, line.values, strict=True)
    ]
    table = pd.DataFrame(points, columns=[TIME, VALUE, SERIES])
    table[TIME] = pd.to_datetime(table[TIME], unit="ms", utc=True)
    table[VALUE] = table[VALUE].astype("float64")
    return table


def spec(title: str, *, step: bool, whole: bool = False, legend: bool = True) -> dict[str, Any]:
    """Return a Vega-Lite specification of lines over time; `step`: a value holds until the next one."""
    base = alt.Chart(alt.NamedData("rows"))
    near = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", fields=[TIME], empty=False
    )
    axis = alt.Axis(format=",d" if whole else "~s", tickMinStep=1 if whole else 0, tickCount=5, title=None)
    x = alt.X(f"{TIME}:T", title=None, axis=alt.Axis(tickCount=6, labelOverlap=True, grid=False))
    y = alt.Y(f"{VALUE}:Q", axis=axis, scale=alt.Scale(zero=whole, nice=True))
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
    return layers
