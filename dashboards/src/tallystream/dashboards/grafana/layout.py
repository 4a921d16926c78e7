"""Where panels go: from left to right on Grafana's grid of 24 columns, each row under its heading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream.dashboards.grafana.board import Row
    from tallystream.dashboards.grafana.panel import Panel
    from tallystream.dashboards.grafana.settings import Settings

WIDTH = 24


def arranged(rows: Sequence[Row], settings: Settings) -> list[dict[str, Any]]:
    """Return the JSON of the headings and of the panels that the flavour has; a row without a panel is left out.

    A panel's id is its number among all panels of all flavours: the same in each of them.
    """
    made: list[dict[str, Any]] = []
    number, top = 0, 0
    for row in rows:
        heading = number + 1
        numbered = list(enumerate(row.panels, start=heading + 1))
        number += 1 + len(row.panels)
        shown = [(at, panel) for at, panel in numbered if settings.flavour in panel.queries]
        if not shown:
            continue
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        made.append(
            {"id": heading, "type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": place}
        )
        panels, top = _flow(shown, settings, top + 1)
        made += panels
    return made


def _flow(shown: Iterable[tuple[int, Panel]], settings: Settings, top: int) -> tuple[list[dict[str, Any]], int]:
    """Return the panels' JSON, and the first line below them; a line is as high as its highest panel."""
    made, left, height = [], 0, 0
    for number, panel in shown:
        if left + panel.width > WIDTH:
            left, top, height = 0, top + height, 0
        made.append(panel.model(settings, number, {"x": left, "y": top, "w": panel.width, "h": panel.height}))
        left, height = left + panel.width, max(height, panel.height)
    return made, top + height
