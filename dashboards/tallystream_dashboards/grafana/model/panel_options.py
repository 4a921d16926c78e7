"""How each kind of panel looks: the parts of its JSON that are the same for all of the kind."""

from __future__ import annotations

from typing import Any

GREEN, YELLOW, ORANGE, RED, GREY = "green", "yellow", "orange", "red", "text"


def custom(kind: str, *, step: bool = False) -> dict[str, Any]:
    """Return `fieldConfig.defaults.custom`."""
    looks: dict[str, dict[str, Any]] = {
        "timeseries": {
            "drawStyle": "line",
            "lineInterpolation": "stepBefore" if step else "linear",
            "lineWidth": 1,
            "fillOpacity": 8,
            "showPoints": "auto",
            # A sum is written when it changes: what lies between two points is no gap.
            "spanNulls": True,
        },
        "stat": {},
        "table": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": True},
        "state-timeline": {"fillOpacity": 80, "lineWidth": 0, "spanNulls": 120_000},
    }
    return looks[kind]


def options(kind: str) -> dict[str, Any]:
    """Return `options`."""
    legend = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
    tooltip = {"mode": "multi", "sort": "desc"}
    made: dict[str, dict[str, Any]] = {
        "timeseries": {"legend": legend, "tooltip": tooltip},
        "stat": {
            "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
            "orientation": "auto",
            "textMode": "auto",
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
        },
        "table": {"showHeader": True, "cellHeight": "sm"},
        "state-timeline": {
            "mergeValues": True,
            "showValue": "auto",
            "alignValue": "left",
            "rowHeight": 0.9,
            "legend": legend,
            "tooltip": {"mode": "single", "sort": "none"},
        },
    }
    return made[kind]


def words(**colours: str) -> dict[str, Any]:
    """Return a value mapping: the word (or number, after an underscore) keeps its text and gets a colour."""
    return {
        "type": "value",
        "options": {
            word: {"text": word, "color": colour, "index": at} for at, (word, colour) in enumerate(colours.items())
        },
    }


def yes_no(yes: str, no: str, *, good: bool = True) -> dict[str, Any]:
    """Return a value mapping of 1 and 0 to words; `good`: 1 is the good one."""
    colours = (GREEN, RED) if good else (RED, GREEN)
    return {
        "type": "value",
        "options": {
            "1": {"text": yes, "color": colours[0], "index": 0},
            "0": {"text": no, "color": colours[1], "index": 1},
        },
    }


VERDICTS = words(OK=GREEN, NOTFOUND=GREY, WARN=YELLOW, REWIND=ORANGE, STALL=RED, STOP=RED, ERR=RED)
"""The verdicts of the lag, in their colours."""
