"""The contact point and the alert rules in the form of Grafana's alerting: one group that only this project uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.alerts import flux, prometheus
from tallystream_dashboards.grafana.alerts.rules import GROUP, INTERVAL_S, RULES
from tallystream_dashboards.grafana.settings import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.grafana.alerts.rules import Rule
    from tallystream_dashboards.grafana.settings import Settings

_ADDRESS_FIELDS = {"webhook": "url", "email": "addresses"}
_EXPRESSION = "__expr__"


def contact_point(settings: Settings) -> dict[str, Any]:
    """Return the contact point. It has the folder's title as its name, and every rule names it as its receiver."""
    contact = settings.contact
    return {
        "uid": settings.uid("contact"),
        "name": settings.folder_title,
        "type": contact.kind,
        "settings": {_ADDRESS_FIELDS[contact.kind]: contact.address},
        "disableResolveMessage": False,
    }


def rule_groups(settings: Settings, dashboards: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the group of rules, which link to panels of the dashboards (JSON by uid).

    InfluxQL has no group: the rules of Flux watch the same points.
    """
    if settings.flavour == "influxql":
        return []
    queries = flux.queries(settings) if settings.flavour == "flux" else prometheus.expressions(settings)
    rules = [_rule(rule, queries[rule.slug], settings, dashboards) for rule in RULES]
    return [
        {
            "title": GROUP,
            "folderUid": settings.uid("folder"),
            "interval": INTERVAL_S,
            "rules": rules,
        }
    ]


def _rule(rule: Rule, query: str, settings: Settings, dashboards: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    dashboard_uid = settings.uid(rule.dashboard)
    panels = (panel for panel in dashboards[dashboard_uid]["panels"] if panel["type"] != "row")
    panel_id = next(panel["id"] for panel in panels if panel["title"] == rule.panel)
    texts = rule.annotations(settings, value='{{ printf "%.0f" $values.B.Value }}', label="{{ $labels.NAME }}")
    return {
        "uid": settings.uid(rule.slug),
        "title": rule.title,
        "orgID": 1,
        "folderUID": settings.uid("folder"),
        "ruleGroup": GROUP,
        "condition": "C",
        "data": [_query(query, settings), _reduce(), _compare(rule.limit(settings.thresholds))],
        "for": f"{rule.for_s}s",
        "noDataState": rule.no_data,
        # If the store does not answer, one rule fires, not all; the others keep their state.
        "execErrState": "Alerting" if rule.slug == "sink-behind" else "KeepLast",
        "isPaused": False,
        "labels": rule.routing_labels(),
        "annotations": texts | {"__dashboardUid__": dashboard_uid, "__panelId__": str(panel_id)},
        "notification_settings": {"receiver": settings.folder_title},
    }


def _query(query: str, settings: Settings) -> dict[str, Any]:
    datasource = {"type": PLUGINS[settings.flavour], "uid": settings.datasource_uid}
    model: dict[str, Any] = {"refId": "A", "datasource": datasource}
    if settings.flavour == "flux":
        model["query"] = query
    else:
        model |= {"expr": query, "instant": True, "range": False}
    return {
        "refId": "A",
        "queryType": "",
        # Grafana requires a range; the queries set their own.
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": settings.datasource_uid,
        "model": model,
    }


def _reduce() -> dict[str, Any]:
    return _expression("B", {"type": "reduce", "expression": "A", "reducer": "last", "settings": {"mode": "dropNN"}})


def _compare(limit: float) -> dict[str, Any]:
    evaluator = {"type": "gt", "params": [limit]}
    return _expression("C", {"type": "threshold", "expression": "B", "conditions": [{"evaluator": evaluator}]})


def _expression(ref_id: str, model: dict[str, Any]) -> dict[str, Any]:
    return {
        "refId": ref_id,
        "queryType": "",
        "relativeTimeRange": {"from": 0, "to": 0},
        "datasourceUid": _EXPRESSION,
        "model": {"refId": ref_id, "datasource": {"type": _EXPRESSION, "uid": _EXPRESSION}, **model},
    }
