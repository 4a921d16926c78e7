"""A query as a panel asks it: its text, what its lines are called, and its JSON by flavour."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tallystream_dashboards.grafana.datasources import TYPES
from tallystream_dashboards.grafana.settings import Flavour

DATASOURCE_VARIABLE = "${datasource}"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Args:
        text: Flux, InfluxQL or PromQL, with Grafana's variables in it.
        legend: what a line is called, with its labels as `{app}`; empty where there is a single one.
        table: the answer is a table, not lines over time.
    """

    text: str
    legend: str = ""
    table: bool = False


Queries = dict[Flavour, tuple[Query, ...]]
"""What a panel asks, by flavour."""


def target(query: Query, flavour: Flavour, number: int) -> dict[str, Any]:
    """Return the query as Grafana's panels hold it; `number` 0 is A."""
    one: dict[str, Any] = {
        "refId": chr(ord("A") + number),
        "datasource": {"type": TYPES[flavour], "uid": DATASOURCE_VARIABLE},
    }
    if flavour == "flux":
        return one | {"query": query.text}
    if flavour == "influxql":
        alias = re.sub(r"{(\w+)}", lambda m: "$m" if m[1] == "metric" else f"$tag_{m[1]}", query.legend)
        shape = "table" if query.table else "time_series"
        return one | {"query": query.text, "rawQuery": True, "resultFormat": shape, "alias": alias}
    return one | {
        "expr": query.text,
        "legendFormat": re.sub(r"{(\w+)}", lambda m: f"{{{{{m[1]}}}}}", query.legend) or "__auto",
        "instant": query.table,
        "range": not query.table,
        "format": "table" if query.table else "time_series",
    }


def name_overrides(queries: tuple[Query, ...], flavour: Flavour) -> list[dict[str, Any]]:
    """Return how lines are called where the query can't say it, in Flux: by the query that they come from."""
    if flavour != "flux":
        return []
    return [
        {
            "matcher": {"id": "byFrameRefID", "options": chr(ord("A") + number)},
            "properties": [
                {
                    "id": "displayName",
                    "value": re.sub(r"{(\w+)}", lambda m: f"${{__field.labels.{m[1]}}}", query.legend),
                }
            ],
        }
        for number, query in enumerate(queries)
        if query.legend and not query.table
    ]
