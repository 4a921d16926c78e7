"""Charts: the rows, a Vega-Lite specification without data, and a legend.

The data are separate from the specification, so that a refresh moves the lines and does not draw the chart again. The
legend is separate from the chart because it would take space from the lines.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tallystream_dashboards import formatting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_dashboards.data.lines import ChartData
    from tallystream_dashboards.page.metrics_data import Event

TIME, VALUE, SERIES, COLOR, ALONE = "time", "value", "series", "color", "alone"

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

_SPEC = Path(__file__).with_name("chart.json").read_text(encoding="utf-8")


def rows(chart: ChartData) -> pd.DataFrame:
    """Return one row for each point: time (UTC), value (a float, NaN for a gap), the series' label, and its colour.

    A point that is `alone` has no neighbour that a line could lead to.
    """
    colors = _color_numbers(line.label for line in chart.lines)
    points: list[tuple[int, float | None, str, int]] = [
        (time, value, line.label, colors[line.label])
        for line in chart.lines
        for time, value in zip(line.times_ms, line.values, strict=True)
    ]
    points += _edges(chart)
    table = pd.DataFrame(points, columns=[TIME, VALUE, SERIES, COLOR])
    table[TIME] = pd.to_datetime(table[TIME], unit="ms", utc=True)
    table[VALUE] = table[VALUE].astype("float64")
    table[COLOR] = table[COLOR].astype("int8")
    of_line = table.groupby(SERIES)[VALUE]
    table[ALONE] = table[VALUE].notna() & of_line.shift().isna() & of_line.shift(-1).isna()
    return table


def legend(title: str, chart: ChartData) -> str:
    """Return the legend as HTML, sorted by name, and a summary for screen readers. A single line has no legend."""
    summary = f'<p class="sr-only">{escape(text(title, chart))}</p>'
    if len(chart.lines) < 2:
        return summary
    colors = _color_numbers(line.label for line in chart.lines)
    # The title shows names that are cut off. The tab index allows scrolling the list by keyboard.
    items = "".join(
        f'<li title="{escape(label)}"><i style="background:{COLORS[number]}"></i>{escape(label)}</li>'
        for label, number in colors.items()
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
    return f"{title}, newest value and range of each line. {'; '.join(parts)}."


def _color_numbers(labels: Iterable[str]) -> dict[str, int]:
    """Return the number of each label's colour, by name, so that it is the same when the order by value changes."""
    return {label: number for number, label in enumerate(sorted(labels, key=_natural))}


def _natural(label: str) -> list[tuple[int, str]]:
    """Return a sort key that places `worker-2` before `worker-10`. A number is compared by its length, then as text."""
    parts = enumerate(re.split("0*([0-9]+)", label))
    return [(len(part), part) if index % 2 else (0, part) for index, part in parts]


def _edges(chart: ChartData) -> list[tuple[int, float | None, str, int]]:
    """Return points without a value at the ends of the period, so that the axis covers all of it."""
    first = chart.lines[0]
    return [
        (time, None, first.label, 0)
        for time, missing in zip(
            chart.period_ms,
            (first.times_ms[0] > chart.period_ms[0], first.times_ms[-1] < chart.period_ms[1]),
            strict=True,
        )
        if missing
    ]


def spec(
    title: str, *, step: bool = False, integers: bool = False, zero: bool = False, events: Sequence[Event] = ()
) -> dict[str, Any]:
    """Return a Vega-Lite specification of lines over time; with `step`, a value is drawn until the next one.

    With `zero` the axis of the values begins at 0, as that of `integers` always does.

    Each event is a thin vertical line with its text as tooltip. One layer both selects the nearest point and marks it:
    a layer for the mark alone would usually be empty, and Vega warns about empty layers at every refresh.
    """
    chart: dict[str, Any] = json.loads(_SPEC.replace("TITLE", title))
    (drawn,) = chart["layer"]
    drawn["encoding"]["color"]["scale"] = {"domain": list(range(len(COLORS))), "range": list(COLORS)}
    if step:
        drawn["layer"][0]["mark"]["interpolate"] = "step-after"
    if integers:
        drawn["encoding"]["y"]["axis"] |= {"format": ",d", "tickMinStep": 1}
    if integers or zero:
        # Without this, a line of zeros would be drawn in the middle, with negative numbers on the axis.
        drawn["encoding"]["y"]["scale"] = {
            "zero": True,
            "nice": True,
            "domain": {"unionWith": [0, 1 if integers else 0]},
        }
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
