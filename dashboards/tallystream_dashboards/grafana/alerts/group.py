"""The alert rules as Grafana's unified alerting takes them: one group, which belongs to this project alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.alerts import flux, prometheus
from tallystream_dashboards.grafana.alerts.rules import RULES
from tallystream_dashboards.grafana.dashboards.all import BY_NAME
from tallystream_dashboards.grafana.datasources import reference

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.alerts.rules import Rule
    from tallystream_dashboards.grafana.settings import Settings

_KEYS = {"webhook": "url", "email": "addresses"}


def contact_point(settings: Settings) -> dict[str, Any]:
    """Return the contact point, named like the folder; each rule names it as its receiver."""
    contact = settings.contact
    return {
        "uid": settings.uid("contact"),
        "name": settings.folder_title,
        "type": contact.kind,
        "settings": {_KEYS[contact.kind]: contact.address},
        "disableResolveMessage": False,
    }


GROUP = "tallystream"
"""The only group, and the label `owner` of every rule: what is in it is ours, and nothing else is."""

INTERVAL_S = 60
_EXPRESSION = "__expr__"
_VALUE = '{{ printf "%.0f" $values.B.Value }}'
_LABEL = "{{ $labels.NAME }}"


def rule_groups(settings: Settings) -> list[dict[str, Any]]:
    """Return the group of rules; none for InfluxQL: there, the rules of Flux watch the same points."""
    if settings.flavour == "influxql":
        return []
    queries = {
        "flux": flux.queries,
        "prometheus": prometheus.expressions,
    }[settings.flavour](settings)
    return [
        {
            "title": GROUP,
            "folderUid": settings.uid("folder"),
            "interval": INTERVAL_S,
            "rules": [_rule(rule, queries[rule.slug], settings) for rule in RULES],
        }
    ]


def notes(rule: Rule, settings: Settings, *, value: str, label: str) -> dict[str, str]:
    """Return what a notification says; `value` and `label` are templates, as `Rule.text` takes them."""
    fields = {
        name: rule.text(text, settings.thresholds, value=value, label=label)
        for name, text in (("summary", rule.summary), ("reason", rule.reason), ("action", rule.action))
    }
    return {
        "summary": fields["summary"],
        "description": f"{fields['reason']} What to do: {fields['action']}",
        "runbook_url": f"{settings.runbook_url}#{rule.slug}",
    }


def labels(rule: Rule) -> dict[str, str]:
    """Return the labels by which alerts are routed."""
    return {"severity": rule.severity, "owner": GROUP}


def _rule(rule: Rule, query: str, settings: Settings) -> dict[str, Any]:
    panel = BY_NAME[rule.dashboard].panel_id(rule.panel, settings)
    # Both or none: Grafana refuses a panel without its dashboard.
    shown = {} if panel is None else {"__dashboardUid__": settings.uid(rule.dashboard), "__panelId__": str(panel)}
    return {
        "uid": settings.uid(rule.slug),
        "title": rule.title,
        "orgID": 1,
        "folderUID": settings.uid("folder"),
        "ruleGroup": GROUP,
        "condition": "C",
        "data": [_asked(query, settings), _reduced(), _compared(rule.limit(settings.thresholds))],
        "for": f"{rule.for_s}s",
        "noDataState": rule.no_data,
        # A store that does not answer makes one alert, not one of each rule; the others keep what they were.
        "execErrState": "Alerting" if rule.slug == "sink-behind" else "KeepLast",
        "isPaused": False,
        "labels": labels(rule),
        "annotations": notes(rule, settings, value=_VALUE, label=_LABEL) | shown,
        "notification_settings": {"receiver": settings.folder_title},
    }


def _asked(query: str, settings: Settings) -> dict[str, Any]:
    model: dict[str, Any] = {"refId": "A", "datasource": reference(settings)}
    if settings.flavour == "flux":
        model["query"] = query
    else:
        model |= {"expr": query, "instant": True, "range": False}
    return {
        "refId": "A",
        "queryType": "",
        # The queries say themselves how far they look back.
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": settings.datasource_uid,
        "model": model,
    }


def _reduced() -> dict[str, Any]:
    return _expression("B", {"type": "reduce", "expression": "A", "reducer": "last", "settings": {"mode": "dropNN"}})


def _compared(limit: float) -> dict[str, Any]:
    evaluator = {"type": "gt", "params": [limit]}
    return _expression("C", {"type": "threshold", "expression": "B", "conditions": [{"evaluator": evaluator}]})


def _expression(name: str, model: dict[str, Any]) -> dict[str, Any]:
    return {
        "refId": name,
        "queryType": "",
        "relativeTimeRange": {"from": 0, "to": 0},
        "datasourceUid": _EXPRESSION,
        "model": {"refId": name, "datasource": {"type": _EXPRESSION, "uid": _EXPRESSION}, **model},
    }
