"""A dashboard: rows of panels, variables, links and annotations, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystream.dashboards.grafana.datasources import TYPES
from tallystream.dashboards.grafana.layout import arranged
from tallystream.dashboards.grafana.query import DATASOURCE_VARIABLE
from tallystream.dashboards.grafana.variables import bucket_variable, datasource_variable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream.dashboards.grafana.panel import Panel
    from tallystream.dashboards.grafana.settings import Flavour, Settings
    from tallystream.dashboards.grafana.variables import Variable

SCHEMA_VERSION = 39
"""Of the dashboard's JSON: Grafana 11's. A newer Grafana brings it up to its own."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard. `name` is the end of its uid for ever; `events` annotates graphs with restarts."""

    name: str
    title: str
    help: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    events: Mapping[Flavour, str]

    def has(self, flavour: Flavour) -> bool:
        """Tell whether the flavour has any panel of it."""
        return any(flavour in panel.queries for row in self.rows for panel in row.panels)

    def model(self, settings: Settings, others: Sequence[Board]) -> dict[str, Any]:
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
            "panels": arranged(self.rows, settings),
        }

    def panel_id(self, title: str, settings: Settings) -> int | None:
        """Return the id of the panel with this title, None where the flavour does not have it."""
        panels = (one for one in arranged(self.rows, settings) if one["type"] != "row")
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


def _link(settings: Settings, other: Board) -> dict[str, Any]:
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
