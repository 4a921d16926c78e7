"""All resources of a flavour, in the form of Grafana's HTTP API. The dashboards are the JSON in `files`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.rules import FILES, GROUP, INTERVAL_S, RULES
from tallystream_dashboards.grafana.settings import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tallystream_dashboards.grafana.rules import Rule
    from tallystream_dashboards.grafana.settings import Settings

TOKEN = "$INFLUXDB_TOKEN"  # noqa: S105 (the name of an environment variable, not a secret)

_UID = re.compile(r"\btallystream-(?=(?:overview|metric|instances|lag|pipeline|flux|prometheus)\b)")
"""The prefix of the uids in the files."""

_ADDRESS_FIELDS = {"webhook": "url", "email": "addresses"}
_EXPRESSION = "__expr__"


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything that Grafana needs, as plain JSON; the same settings give the same resources.

    A secret is a reference to an environment variable, `$NAME`, in a string below `secureJsonData` of the data source
    or below `settings` of the contact point. Grafana resolves references in provisioning files, but not over HTTP.

    Args:
        folder: `uid` and `title` (POST /api/folders).
        datasource: POST /api/datasources, with `uid` and `name`.
        dashboards: by uid, the dashboard's JSON model (`dashboard` in POST /api/dashboards/db), with `uid` and `title`,
            without `id`.
        rule_group: PUT /api/v1/provisioning/folder/{folderUid}/rule-groups/{title}: `title`, `folderUid`, `interval`
            (seconds) and `rules`, each with a `uid`.
        contact_point: POST /api/v1/provisioning/contact-points, with `uid` and `name`, which is the folder's title.
            Every rule names it as its receiver.
    """

    folder: dict[str, Any]
    datasource: dict[str, Any]
    dashboards: dict[str, dict[str, Any]]
    rule_group: dict[str, Any]
    contact_point: dict[str, Any]


def resources(settings: Settings) -> Resources:
    """Return all resources of the settings' flavour."""
    models = [_dashboard(path, settings) for path in sorted((FILES / settings.flavour).glob("*.json"))]
    dashboards = {model["uid"]: model for model in models}
    contact = settings.contact
    return Resources(
        folder={"uid": settings.uid("folder"), "title": settings.folder_title},
        datasource=_datasource(settings),
        dashboards=dashboards,
        rule_group={
            "title": GROUP,
            "folderUid": settings.uid("folder"),
            "interval": INTERVAL_S,
            "rules": [_rule(rule, settings, dashboards) for rule in RULES],
        },
        contact_point={
            "uid": settings.uid("contact"),
            "name": settings.folder_title,
            "type": contact.kind,
            "settings": {_ADDRESS_FIELDS[contact.kind]: contact.address},
            "disableResolveMessage": False,
        },
    )


def _dashboard(path: Path, settings: Settings) -> dict[str, Any]:
    """Return the model in a file with the settings' uids, folder title, data source and bucket."""
    model: dict[str, Any] = json.loads(_UID.sub(settings.uid(""), path.read_text(encoding="utf-8")))
    model["title"] = model["title"].replace("Tallystream", settings.folder_title, 1)
    for variable in model["templating"]["list"]:
        if variable["name"] == "datasource":
            variable["current"] |= {"text": settings.name}
        elif variable["name"] == "bucket":
            variable["current"] |= {"text": settings.bucket, "value": settings.bucket}
    return model


def _datasource(settings: Settings) -> dict[str, Any]:
    fields: dict[str, dict[str, Any]] = {
        "flux": {
            "jsonData": {"version": "Flux", "organization": settings.org, "defaultBucket": settings.bucket},
            "secureJsonData": {"token": TOKEN},
        },
        "prometheus": {"jsonData": {"httpMethod": "POST"}},
    }
    return {
        "uid": settings.datasource_uid,
        "name": settings.name,
        "type": PLUGINS[settings.flavour],
        "access": "proxy",
        "url": settings.url,
        "isDefault": False,
        "basicAuth": False,
        **fields[settings.flavour],
    }


def _rule(rule: Rule, settings: Settings, dashboards: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return an alert rule, with a link to its panel."""
    dashboard_uid = settings.uid(rule.dashboard)
    panels = (panel for panel in dashboards[dashboard_uid]["panels"] if panel["type"] != "row")
    panel_id = next(panel["id"] for panel in panels if panel["title"] == rule.panel)
    texts = rule.annotations(settings, value='{{ printf "%.0f" $values.B.Value }}', label="{{ $labels.NAME }}")
    evaluator = {"type": "gt", "params": [rule.limit(settings)]}
    return {
        "uid": settings.uid(rule.slug),
        "title": rule.title,
        "orgID": 1,
        "folderUID": settings.uid("folder"),
        "ruleGroup": GROUP,
        "condition": "C",
        "data": [
            _query(rule.query(settings), settings),
            _expression("B", type="reduce", expression="A", reducer="last", settings={"mode": "dropNN"}),
            _expression("C", type="threshold", expression="B", conditions=[{"evaluator": evaluator}]),
        ],
        "for": f"{rule.for_s}s",
        "noDataState": rule.no_data,
        # If the store does not answer, one rule fires, not all; the others keep their state.
        "execErrState": "Alerting" if rule.slug == "sink-behind" else "KeepLast",
        "isPaused": False,
        "labels": rule.routing_labels(),
        "annotations": texts | {"__dashboardUid__": dashboard_uid, "__panelId__": str(panel_id)},
        "notification_settings": {"receiver": settings.folder_title},
    }


def _query(text: str, settings: Settings) -> dict[str, Any]:
    datasource = {"type": PLUGINS[settings.flavour], "uid": settings.datasource_uid}
    query = {"query": text} if settings.flavour == "flux" else {"expr": text, "instant": True, "range": False}
    return {
        "refId": "A",
        "queryType": "",
        # Grafana requires a range; the queries set their own.
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": settings.datasource_uid,
        "model": {"refId": "A", "datasource": datasource, **query},
    }


def _expression(ref_id: str, **model: Any) -> dict[str, Any]:
    return {
        "refId": ref_id,
        "queryType": "",
        "relativeTimeRange": {"from": 0, "to": 0},
        "datasourceUid": _EXPRESSION,
        "model": {"refId": ref_id, "datasource": {"type": _EXPRESSION, "uid": _EXPRESSION}, **model},
    }
