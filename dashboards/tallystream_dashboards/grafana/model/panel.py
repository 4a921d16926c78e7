"""A panel: what it shows, by flavour, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tallystream_dashboards.grafana.datasources import TYPES
from tallystream_dashboards.grafana.model.query import DATASOURCE_VARIABLE, Queries, name_overrides, target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.grafana.settings import Flavour, Settings

GREEN, YELLOW, ORANGE, RED, GREY = "green", "yellow", "orange", "red", "text"


def custom(kind: str, *, step: bool = False) -> dict[str, Any]:
    """Return `fieldConfig.defaults.custom`."""
    panel_options: dict[str, dict[str, Any]] = {
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
    return panel_options[kind]


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


def value_mapping(**colours: str) -> dict[str, Any]:
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


STATUS_COLOURS = value_mapping(OK=GREEN, NOTFOUND=GREY, WARN=YELLOW, REWIND=ORANGE, STALL=RED, STOP=RED, ERR=RED)
"""The statuses of the lag, in their colours."""


Kind = Literal["timeseries", "stat", "table", "state-timeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. Flavours without a query do not have it: their store does not have the data.

    Args:
        title: unique within its dashboard.
        help: what it shows, a sentence or two.
        empty: what to do when there is nothing, shown in its place.
        unit: Grafana's id of the unit.
        queries: by flavour.
        step: lines are drawn as steps: each value holds for the time before it.
        columns: of a table, by its name: the unit.
        links: of a table, by the column's name: where a click leads, `/d/` and the name of a dashboard. Not where lines
            are made a table: their names are no values.
        mappings: Grafana's value mappings, of words to colours.
        join: of a table, the column by which its queries' answers become one.
        rename: of a table, columns that the query can't name; an empty name hides the column.
    """

    title: str
    kind: Kind = "timeseries"
    help: str
    empty: str
    unit: str
    queries: Queries
    width: int = 12
    height: int = 8
    step: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    mappings: tuple[Mapping[str, Any], ...] = ()
    join: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)

    def model(self, settings: Settings, number: int, place: Mapping[str, int]) -> dict[str, Any]:
        """Return its JSON; `number` is its id, unique within the dashboard."""
        flavour = settings.flavour
        queries = self.queries[flavour]
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "noValue": self.empty,
            "custom": custom(self.kind, step=self.step),
        }
        if self.mappings:
            defaults["mappings"] = [dict(one) for one in self.mappings]
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.help,
            "gridPos": dict(place),
            "datasource": {"type": TYPES[flavour], "uid": DATASOURCE_VARIABLE},
            "targets": [target(query, flavour, at) for at, query in enumerate(queries)],
            "fieldConfig": {
                "defaults": defaults,
                "overrides": [*name_overrides(queries, flavour), *self._column_overrides(settings)],
            },
            "options": options(self.kind),
            "transformations": self._transformations(flavour),
        }

    def _column_overrides(self, settings: Settings) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        links = self.links if all(query.table for query in self.queries[settings.flavour]) else {}
        for name in dict.fromkeys([*self.columns, *links]):
            properties: list[dict[str, Any]] = []
            if name in self.columns:
                properties.append({"id": "unit", "value": self.columns[name]})
            if name in links:
                url = links[name].replace("/d/", f"/d/{settings.uid('')}", 1)
                properties.append({"id": "links", "value": [{"title": "Show it", "url": url}]})
            found.append({"matcher": {"id": "byName", "options": name}, "properties": properties})
        return found

    def _transformations(self, flavour: Flavour) -> list[dict[str, Any]]:
        if self.kind != "table" or flavour == "flux":
            return []
        made: list[dict[str, Any]] = []
        if not self.queries[flavour][0].table:
            # Of lines, the newest of each: an answer of InfluxQL as a table does not say of which measurement it is.
            made.append({"id": "reduce", "options": {"reducers": ["lastNotNull"], "mode": "seriesToRows"}})
        elif flavour == "influxql":
            made.append({"id": "merge", "options": {}})
        elif self.join:
            made.append({"id": "joinByField", "options": {"byField": self.join, "mode": "outer"}})
        if self.rename:
            hidden = {name: True for name, new in self.rename.items() if not new}
            shown = {name: new for name, new in self.rename.items() if new}
            organize = {"excludeByName": hidden, "indexByName": {}, "renameByName": shown}
            made.append({"id": "organize", "options": organize})
        return made
