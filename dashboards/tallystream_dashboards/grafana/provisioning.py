"""Files that Grafana reads when it starts: data source, provider of dashboards, alerting.

In them `$NAME` is an environment variable, and a dollar that is none is doubled; but annotations and queries of alert
rules are taken as they are. Source: "Provision Grafana" in its documentation, and pkg/services/provisioning.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.resources import Resources

_REFERENCES = re.compile(r"secureJsonData|settings|url")
"""Below which names a dollar before capitals begins a reference; elsewhere it is a dollar."""


def datasources(made: Resources) -> dict[str, Any]:
    """Return provisioning/datasources/*.yaml."""
    listed = [_escaped(one) | {"orgId": 1, "editable": False} for one in made.datasources]
    return {"apiVersion": 1, "datasources": listed}


def provider(made: Resources, path: str) -> dict[str, Any]:
    """Return provisioning/dashboards/*.yaml; `path` is where Grafana finds the dashboards' files."""
    return {
        "apiVersion": 1,
        "providers": [
            {
                "name": made.folder["uid"],
                "orgId": 1,
                "folder": _escaped(made.folder["title"]),
                "folderUid": made.folder["uid"],
                "type": "file",
                "disableDeletion": False,
                "updateIntervalSeconds": 30,
                "allowUiUpdates": False,
                "options": {"path": path},
            }
        ],
    }


def alerting(made: Resources) -> dict[str, Any]:
    """Return provisioning/alerting/*.yaml: the contact point and the rules."""
    contact = made.contact_point
    receiver = {name: contact[name] for name in ("uid", "type", "settings", "disableResolveMessage")}
    groups = [
        {
            "orgId": 1,
            "name": group["title"],
            "folder": _escaped(made.folder["title"]),
            "interval": f"{group['interval']}s",
            "rules": [_bare(rule) for rule in group["rules"]],
        }
        for group in made.rule_groups
    ]
    named = _escaped(contact["name"])
    return {
        "apiVersion": 1,
        "contactPoints": [{"orgId": 1, "name": named, "receivers": [_escaped(receiver)]}],
        "groups": groups,
    }


def _bare(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule without what its group says, and with its panel as files name it."""
    known = {"orgID", "folderUID", "ruleGroup", "annotations"}
    notes = dict(rule["annotations"])
    uid, panel = notes.pop("__dashboardUid__", None), notes.pop("__panelId__", None)
    shown = {} if uid is None or panel is None else {"dashboardUid": uid, "panelId": int(panel)}
    kept = {name: value for name, value in rule.items() if name not in known | {"data", "notification_settings"}}
    settings = {"notification_settings": _escaped(rule["notification_settings"])}
    return kept | {"data": rule["data"], "annotations": notes} | settings | shown


def _escaped(value: Any, *, references: bool = False) -> Any:
    """Return the value with every dollar doubled, but for those that begin a reference where references may be."""
    if isinstance(value, dict):
        return {
            name: _escaped(one, references=references or _REFERENCES.fullmatch(name) is not None)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_escaped(one, references=references) for one in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\$(?![A-Z_]+\b)", "$$$$", value) if references else value.replace("$", "$$")
