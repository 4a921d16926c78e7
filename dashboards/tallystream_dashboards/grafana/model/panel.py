"""A panel and its queries, by flavour, and their JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tallystream_dashboards.grafana.model.variables import DATASOURCE_VARIABLE
from tallystream_dashboards.grafana.settings import PLUGINS, Flavour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.grafana.settings import Settings

GREEN, YELLOW, ORANGE, RED, GREY = "green", "yellow", "orange", "red", "text"


def _custom(kind: str, *, step: bool) -> dict[str, Any]:
    """Return `fieldConfig.defaults.custom`."""
    panel_options: dict[str, dict[str, Any]] = {
        "timeseries": {
            "drawStyle": "line",
            "lineInterpolation": "stepBefore" if step else "linear",
            "lineWidth": 1,
            "fillOpacity": 8,
            "showPoints": "auto",
            # A sum is written when it changes, so the time between two points is no gap.
            "spanNulls": True,
        },
        "stat": {},
        "table": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": True},
        "state-timeline": {"fillOpacity": 80, "lineWidth": 0, "spanNulls": 120_000},
    }
    return panel_options[kind]


def _options(kind: str) -> dict[str, Any]:
    """Return `options`."""
    legend = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
    tooltip = {"mode": "multi", "sort": "desc"}
    panel_options: dict[str, dict[str, Any]] = {
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
    return panel_options[kind]


def value_mapping(mapped: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return a value mapping; `mapped` has the text and the color of each value."""
    return {
        "type": "value",
        "options": {
            value: {"text": text, "color": color, "index": index}
            for index, (value, (text, color)) in enumerate(mapped.items())
        },
    }


Kind = Literal["timeseries", "stat", "table", "state-timeline"]


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Args:
        text: Flux, InfluxQL or PromQL, with Grafana's variables.
        legend: the name of each line, with labels as `{app}`; empty for a single line.
        table: the result is a table, not lines over time.
    """

    text: str
    legend: str = ""
    table: bool = False


Queries = dict[Flavour, tuple[Query, ...]]
"""The queries of a panel, by flavour."""


def queries(*, legend: str, flux: str = "", influxql: str = "", prometheus: str = "") -> Queries:
    """Return one query, with the same legend, for each flavour that has a text."""
    texts: dict[Flavour, str] = {"flux": flux, "influxql": influxql, "prometheus": prometheus}
    return {flavour: (Query(text, legend),) for flavour, text in texts.items() if text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. It is left out for flavours without queries, whose store does not have the data.

    Args:
        title: unique within its dashboard.
        kind: Grafana's type of the panel.
        description: what it shows, a sentence or two.
        no_value: shown if there is no data: what to do.
        unit: Grafana's ID of the unit.
        queries: by flavour.
        width: in columns of the grid, of 24.
        height: in lines of the grid.
        step: draw lines as steps: a value holds for the time before it.
        columns: of a table, the units by column name.
        links: of a table, the URL of a click by column name: `/d/` and the name of a dashboard. Ignored if a query
            returns lines instead of a table, since the columns then have names of lines.
        mappings: Grafana's value mappings.
        join: of a table, the column by which the results of its queries are joined.
        rename: of a table, columns that the query can't name; an empty name hides the column.
    """

    title: str
    kind: Kind = "timeseries"
    description: str
    no_value: str
    unit: str
    queries: Queries
    width: int = 12
    height: int = 8
    step: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    mappings: tuple[dict[str, Any], ...] = ()
    join: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)

    def model(self, settings: Settings, panel_id: int, position: dict[str, int]) -> dict[str, Any]:
        """Return the panel as JSON; `panel_id` is unique within the dashboard."""
        flavour = settings.flavour
        queries = self.queries[flavour]
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "noValue": self.no_value,
            "custom": _custom(self.kind, step=self.step),
        }
        if self.mappings:
            defaults["mappings"] = list(self.mappings)
        return {
            "id": panel_id,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "gridPos": position,
            "datasource": {"type": PLUGINS[flavour], "uid": DATASOURCE_VARIABLE},
            "targets": [_target(query, flavour, index) for index, query in enumerate(queries)],
            "fieldConfig": {
                "defaults": defaults,
                "overrides": [*_legend_overrides(queries, flavour), *self._column_overrides(settings)],
            },
            "options": _options(self.kind),
            "transformations": self._transformations(flavour),
        }

    def _column_overrides(self, settings: Settings) -> list[dict[str, Any]]:
        overrides: list[dict[str, Any]] = []
        links = self.links if all(query.table for query in self.queries[settings.flavour]) else {}
        for name in dict.fromkeys([*self.columns, *links]):
            properties: list[dict[str, Any]] = []
            if name in self.columns:
                properties.append({"id": "unit", "value": self.columns[name]})
            if name in links:
                url = links[name].replace("/d/", f"/d/{settings.uid('')}", 1)
                properties.append({"id": "links", "value": [{"title": "Show it", "url": url}]})
            overrides.append({"matcher": {"id": "byName", "options": name}, "properties": properties})
        return overrides

    def _transformations(self, flavour: Flavour) -> list[dict[str, Any]]:
        if self.kind != "table" or flavour == "flux":
            return []
        transformations: list[dict[str, Any]] = []
        if not self.queries[flavour][0].table:
            # One table row for the newest point of each line: a table result of InfluxQL has no measurement.
            transformations.append({"id": "reduce", "options": {"reducers": ["lastNotNull"], "mode": "seriesToRows"}})
        elif flavour == "influxql":
            transformations.append({"id": "merge", "options": {}})
        elif self.join:
            transformations.append({"id": "joinByField", "options": {"byField": self.join, "mode": "outer"}})
        if self.rename:
            hidden = {name: True for name, new in self.rename.items() if not new}
            renamed = {name: new for name, new in self.rename.items() if new}
            organize = {"excludeByName": hidden, "indexByName": {}, "renameByName": renamed}
            transformations.append({"id": "organize", "options": organize})
        return transformations


def _target(query: Query, flavour: Flavour, index: int) -> dict[str, Any]:
    target: dict[str, Any] = {
        "refId": _ref_id(index),
        "datasource": {"type": PLUGINS[flavour], "uid": DATASOURCE_VARIABLE},
    }
    if flavour == "flux":
        return target | {"query": query.text}
    result_format = "table" if query.table else "time_series"
    if flavour == "influxql":
        alias = re.sub(r"{(\w+)}", lambda m: "$m" if m[1] == "metric" else f"$tag_{m[1]}", query.legend)
        return target | {"query": query.text, "rawQuery": True, "resultFormat": result_format, "alias": alias}
    return target | {
        "expr": query.text,
        "legendFormat": re.sub(r"{(\w+)}", r"{{\1}}", query.legend) or "__auto",
        "instant": query.table,
        "range": not query.table,
        "format": result_format,
    }


def _legend_overrides(queries: tuple[Query, ...], flavour: Flavour) -> list[dict[str, Any]]:
    """Return the overrides that name the lines of Flux, whose targets have no legend."""
    if flavour != "flux":
        return []
    return [
        {
            "matcher": {"id": "byFrameRefID", "options": _ref_id(index)},
            "properties": [{"id": "displayName", "value": re.sub(r"{(\w+)}", r"${__field.labels.\1}", query.legend)}],
        }
        for index, query in enumerate(queries)
        if query.legend and not query.table
    ]


def _ref_id(index: int) -> str:
    return chr(ord("A") + index)
