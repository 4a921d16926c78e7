"""Charts: the rows, a Vega-Lite specification without data, and a legend.

The data are separate from the specification, so that a refresh moves the lines and does not draw the chart again. The
legend is separate from the chart because it would take space from the lines.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import altair as alt
import pandas as pd

from tallystream_dashboards import formatting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_dashboards.data.lines import ChartData
    from tallystream_dashboards.page.metrics_data import Event

TIME, VALUE, HIGH, SERIES, COLOR = "time", "value", "high", "series", "color"

COLORS = (
    "#2b74c4",
    "#d9730d",
    "#1f9e3a",
    "#f04a55",
    "#7350d0",
    "#8e5d34",
    "#e84fae",
    "#1ba090",
    "#858915",
    "#b04866",
)
"""One colour for each line. Each has a contrast of 3 or more with the light and the dark background."""
OTHERS = "#8a8f98"

_CLOCK = (
    "hours(datum.value) + minutes(datum.value) + seconds(datum.value) == 0 ? timeFormat(datum.value, '%b %d') : "
    "timeFormat(datum.value, seconds(datum.value) ? '%H:%M:%S' : '%H:%M')"
)
"""Times of day with 24 hours, in the browser's zone, and the date at midnight."""

_SHOWN = f"format(datum.{VALUE}, ',.10~g') + (isValid(datum.{HIGH}) ? ' to ' + format(datum.{HIGH}, ',.10~g') : '')"
"""A point's value; in the band, the lowest and the highest value."""


def rows(chart: ChartData) -> pd.DataFrame:
    """Return one row for each point: time (UTC), value (a float, NaN for a gap), the series' label, and its colour.

    The band of the other lines has its lower edge as value and its upper edge in the column `high`.
    """
    colors = _color_numbers(line.label for line in chart.lines)
    points: list[tuple[int, float | None, float | None, str, int]] = [
        (time, value, None, line.label, colors[line.label])
        for line in chart.lines
        for time, value in zip(line.times_ms, line.values, strict=True)
    ]
    if chart.others is not None:
        band = chart.others
        points += [
            (time, low, high, band.label, len(COLORS))
            for time, low, high in zip(band.times_ms, band.lows, band.highs, strict=True)
        ]
    points += _edges(chart)
    table = pd.DataFrame(points, columns=[TIME, VALUE, HIGH, SERIES, COLOR])
    table[TIME] = pd.to_datetime(table[TIME], unit="ms", utc=True)
    table[[VALUE, HIGH]] = table[[VALUE, HIGH]].astype("float64")
    table[COLOR] = table[COLOR].astype("int8")
    return table


def legend(title: str, chart: ChartData) -> str:
    """Return the legend as HTML, sorted by name, and a summary for screen readers. A single line has no legend."""
    summary = f'<p class="sr-only">{escape(text(title, chart))}</p>'
    if len(chart.lines) < 2:
        return summary
    colors = _color_numbers(line.label for line in chart.lines)
    entries = [(label, COLORS[number]) for label, number in colors.items()]
    if chart.others is not None:
        entries.append((chart.others.label, OTHERS))
    # The title shows names that are cut off. The tab index allows scrolling the list by keyboard.
    items = "".join(
        f'<li title="{escape(label)}"><i style="background:{color}"></i>{escape(label)}</li>'
        for label, color in entries
    )
    return f'{summary}<ul class="chart-legend" tabindex="0" aria-label="Lines of {escape(title)}">{items}</ul>'


def text(title: str, chart: ChartData) -> str:
    """Return what the chart shows as text: of each line the newest, the lowest and the highest value."""
    parts = []
    for line in chart.lines:
        known = [value for _, value in zip(line.times_ms, line.values, strict=True) if value is not None]
        if known:
            newest = formatting.number(line.last)
            parts.append(
                f"{line.label}: {newest}, from {formatting.number(min(known))} to {formatting.number(max(known))}"
            )
    others = [chart.others.label] if chart.others is not None else []
    return f"{title}, newest value and range of each line. {'; '.join([*parts, *others])}."


def _color_numbers(labels: Iterable[str]) -> dict[str, int]:
    """Return the number of each label's colour, by name, so that it is the same when the order by value changes."""
    return {label: number for number, label in enumerate(sorted(labels, key=_natural))}


def _natural(label: str) -> list[tuple[int, str]]:
    """Return a sort key that places `worker-2` before `worker-10`. A number is compared by its length, then as text."""
    parts = enumerate(re.split("0*([0-9]+)", label))
    return [(len(part), part) if index % 2 else (0, part) for index, part in parts]


def _edges(chart: ChartData) -> list[tuple[int, float | None, float | None, str, int]]:
    """Return points without a value at the ends of the period, so that the axis covers all of it."""
    first = chart.lines[0]
    return [
        (time, None, None, first.label, 0)
        for time, missing in zip(
            chart.period_ms,
            (first.times_ms[0] > chart.period_ms[0], first.times_ms[-1] < chart.period_ms[1]),
            strict=True,
        )
        if missing
    ]


def spec(
    title: str, *, step: bool, integers: bool = False, others: bool = False, events: Sequence[Event] = ()
) -> dict[str, Any]:
    """Return a Vega-Lite specification of lines over time; with `step`, a value is drawn until the next one.

    With `others` there is an area behind the lines. Each event is a thin vertical line with its text as tooltip.
    """
    base = alt.Chart(alt.NamedData("rows"))
    nearest = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", fields=[TIME], empty=False
    )
    axis = alt.Axis(format=",d" if integers else ",.3~f", tickMinStep=1 if integers else 0, tickCount=5, title=None)
    x = alt.X(f"{TIME}:T", title=None, axis=alt.Axis(tickCount=6, labelOverlap=True, grid=False, labelExpr=_CLOCK))
    # Without this, a line of zeros would be drawn in the middle, with negative numbers on the axis.
    from_zero = alt.Scale(zero=True, nice=True, domain={"unionWith": [0, 1]})
    scale = from_zero if integers else alt.Scale(zero=False, nice=True)
    y = alt.Y(f"{VALUE}:Q", axis=axis, scale=scale)
    colors = alt.Scale(domain=list(range(len(COLORS) + 1)), range=[*COLORS, OTHERS])
    color = alt.Color(f"{COLOR}:N", legend=None, scale=colors)
    curve: Literal["step-after", "linear"] = "step-after" if step else "linear"
    lines = base.mark_line(interpolate=curve, strokeWidth=2).encode(x=x, y=y, color=color)
    tooltip = [
        alt.Tooltip(f"{SERIES}:N", title="series"),
        alt.Tooltip("shown:N", title=title),
        alt.Tooltip(f"{TIME}:T", title="time", format="%Y-%m-%d %H:%M:%S"),
    ]
    # One layer both selects the nearest point and marks it. A separate layer for the mark would usually be empty, and
    # Vega warns about empty layers at every refresh.
    points = (
        base.transform_calculate(shown=_SHOWN)
        .mark_point(filled=True, size=70)
        .encode(
            x=x, y=y, color=color, tooltip=tooltip, opacity=alt.when(nearest).then(alt.value(1)).otherwise(alt.value(0))
        )
        .add_params(nearest)
    )
    layers = [lines, points]
    if others:
        lines = lines.transform_filter(alt.datum[COLOR] < len(COLORS))
        area = base.mark_area(interpolate=curve, opacity=0.25, line={"color": OTHERS, "strokeWidth": 1})
        edges = area.encode(x=x, y=y, y2=alt.Y2(HIGH), color=color)
        layers = [edges.transform_filter(alt.datum[COLOR] == len(COLORS)), lines, points]
    chart: dict[str, Any] = alt.layer(*layers).properties(height=260).to_dict(validate=True)
    chart.pop("data", None)
    # The text below the chart has the values: a description here would draw the chart again at each refresh.
    chart["description"] = f"Chart: {title}. Its values are in the text that follows."
    chart["config"] = {**chart.get("config", {}), "aria": True, "mark": {"aria": False}, "axis": {"aria": False}}
    for layer in chart["layer"]:
        layer.pop("data", None)
    # There are few events, so they are in the specification, which changes only when there is a new one.
    if events:
        chart["layer"].insert(0, _marks(events))
    return chart


def _marks(events: Sequence[Event]) -> dict[str, Any]:
    return {
        "data": {"values": [{TIME: event.ts_ms, "text": event.text} for event in events]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1, "color": "#d9822b", "opacity": 0.8},
        "encoding": {
            "x": {"field": TIME, "type": "temporal"},
            "tooltip": [
                {"field": "text", "type": "nominal", "title": "event"},
                {"field": TIME, "type": "temporal", "title": "time", "format": "%Y-%m-%d %H:%M:%S"},
            ],
        },
    }
