"""A dashboard: rows of panels, variables, links and annotations, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.model.variables import DATASOURCE_VARIABLE, bucket_variable, datasource_variable
from tallystream_dashboards.grafana.settings import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_dashboards.grafana.model.panel import Panel
    from tallystream_dashboards.grafana.model.variables import Variable
    from tallystream_dashboards.grafana.settings import Flavour, Settings

SCHEMA_VERSION = 39
"""The schema version of the JSON, Grafana 11's. Newer versions of Grafana convert it."""

WIDTH = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard; its uid ends with `name`, which never changes.

    `events` has, by flavour, the query of the annotations: restarts.
    """

    name: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    events: Mapping[Flavour, str] = field(default_factory=dict)

    def supports(self, flavour: Flavour) -> bool:
        """Return whether any panel has queries of this flavour."""
        return any(flavour in panel.queries for row in self.rows for panel in row.panels)

    def model(self, settings: Settings, others: Sequence[Dashboard]) -> dict[str, Any]:
        """Return the dashboard as JSON, with links to the `others`."""
        flavour = settings.flavour
        variables = [variable.model(flavour) for variable in self.variables if flavour in variable.queries]
        buckets = [bucket_variable(settings)] if flavour == "flux" else []
        return {
            "uid": settings.uid(self.name),
            "title": f"{settings.folder_title} {self.title}",
            "description": self.description,
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
            "panels": _place_rows(self.rows, settings),
        }

    def _annotations(self, flavour: Flavour) -> list[dict[str, Any]]:
        if flavour not in self.events:
            return []
        target: dict[str, Any] = {"refId": "Events", "query": self.events[flavour]}
        if flavour == "influxql":
            target |= {"rawQuery": True, "resultFormat": "time_series", "fromAnnotations": True, "textColumn": "text"}
        return [
            {
                "name": "Events",
                "enable": True,
                "hide": False,
                "iconColor": "orange",
                "datasource": {"type": PLUGINS[flavour], "uid": DATASOURCE_VARIABLE},
                "target": target,
                "mappings": {"text": {"source": "field", "value": "text"}},
            }
        ]


def _link(settings: Settings, other: Dashboard) -> dict[str, Any]:
    return {
        "type": "link",
        "title": other.title,
        "tooltip": other.description,
        "url": f"/d/{settings.uid(other.name)}",
        "icon": "dashboard",
        "keepTime": True,
        "includeVars": True,
        "targetBlank": False,
        "asDropdown": False,
        "tags": [],
    }


def _place_rows(rows: Sequence[Row], settings: Settings) -> list[dict[str, Any]]:
    """Return the JSON of the rows and their panels, without panels that the flavour lacks and without empty rows.

    A panel's ID is its position among the panels of all flavours, so it is the same in each of them.
    """
    placed: list[dict[str, Any]] = []
    row_id, top = 1, 0
    for row in rows:
        panels = [
            (panel_id, panel)
            for panel_id, panel in enumerate(row.panels, start=row_id + 1)
            if settings.flavour in panel.queries
        ]
        if panels:
            position = {"x": 0, "y": top, "w": WIDTH, "h": 1}
            placed.append(
                {"id": row_id, "type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": position}
            )
            models, top = _place_panels(panels, settings, top + 1)
            placed += models
        row_id += 1 + len(row.panels)
    return placed


def _place_panels(
    panels: Iterable[tuple[int, Panel]], settings: Settings, top: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the panels' JSON, and the first line of the grid below them."""
    models, left, height = [], 0, 0
    for panel_id, panel in panels:
        if left + panel.width > WIDTH:
            left, top, height = 0, top + height, 0
        models.append(panel.model(settings, panel_id, {"x": left, "y": top, "w": panel.width, "h": panel.height}))
        left, height = left + panel.width, max(height, panel.height)
    return models, top + height
