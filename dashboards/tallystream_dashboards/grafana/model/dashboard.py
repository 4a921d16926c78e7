"""A dashboard: rows of panels, variables, links and annotations, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.datasources import TYPES
from tallystream_dashboards.grafana.model.query import DATASOURCE_VARIABLE
from tallystream_dashboards.grafana.model.variables import bucket_variable, datasource_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_dashboards.grafana.model.panel import Panel
    from tallystream_dashboards.grafana.model.variables import Variable
    from tallystream_dashboards.grafana.settings import Flavour, Settings

SCHEMA_VERSION = 39
"""Of the dashboard's JSON: Grafana 11's. A newer Grafana brings it up to its own."""


WIDTH = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard. `name` is the end of its uid forever; `events` annotates graphs with restarts."""

    name: str
    title: str
    help: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    events: Mapping[Flavour, str]

    def has(self, flavour: Flavour) -> bool:
        """Tell whether the flavour has any panel of it."""
        return any(flavour in panel.queries for row in self.rows for panel in row.panels)

    def model(self, settings: Settings, others: Sequence[Dashboard]) -> dict[str, Any]:
        """Return its JSON; `others` are the dashboards to which it leads."""
        flavour = settings.flavour
        variables = [one.model(flavour) for one in self.variables if flavour in one.queries]
        buckets = [bucket_variable(settings)] if flavour == "flux" else []
        return {
            "uid": settings.uid(self.name),
            "title": f"{settings.folder_title} {self.title}",
            "description": self.help,
            "tags": ["tallystream", flavour],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,
            "timezone": "",
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [datasource_variable(settings), *buckets, *variables]},
            "annotations": {"list": self._annotations(flavour)},
            "links": [_link(settings, other) for other in others if other.name != self.name],
            "panels": _arranged(self.rows, settings),
        }

    def panel_id(self, title: str, settings: Settings) -> int | None:
        """Return the id of the panel with this title, None where the flavour does not have it."""
        panels = (one for one in _arranged(self.rows, settings) if one["type"] != "row")
        return next((int(one["id"]) for one in panels if one["title"] == title), None)

    def _annotations(self, flavour: Flavour) -> list[dict[str, Any]]:
        if flavour not in self.events:
            return []
        asked: dict[str, Any] = {"refId": "Events", "query": self.events[flavour]}
        if flavour == "influxql":
            asked |= {"rawQuery": True, "resultFormat": "time_series", "fromAnnotations": True, "textColumn": "text"}
        return [
            {
                "name": "Events",
                "enable": True,
                "hide": False,
                "iconColor": "orange",
                "datasource": {"type": TYPES[flavour], "uid": DATASOURCE_VARIABLE},
                "target": asked,
                "mappings": {"text": {"source": "field", "value": "text"}},
            }
        ]


def _link(settings: Settings, other: Dashboard) -> dict[str, Any]:
    return {
        "type": "link",
        "title": other.title,
        "tooltip": other.help,
        "url": f"/d/{settings.uid(other.name)}",
        "icon": "dashboard",
        "keepTime": True,
        "includeVars": True,
        "targetBlank": False,
        "asDropdown": False,
        "tags": [],
    }


def _arranged(rows: Sequence[Row], settings: Settings) -> list[dict[str, Any]]:
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
