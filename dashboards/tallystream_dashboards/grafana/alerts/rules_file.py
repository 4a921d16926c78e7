"""The alert rules as a rules file of Prometheus ("Alerting rules", prometheus.io/docs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.alerts.group import GROUP, INTERVAL_S, labels, notes
from tallystream_dashboards.grafana.alerts.prometheus import absences, expressions
from tallystream_dashboards.grafana.alerts.rules import RULES

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.alerts.rules import Rule
    from tallystream_dashboards.grafana.settings import Settings

_VALUE = '{{ printf "%.0f" $value }}'
_LABEL = "{{ $labels.NAME }}"


def rules_file(settings: Settings) -> dict[str, Any]:
    """Return the file as JSON."""
    measured, missing = expressions(settings), absences(settings)
    return {
        "groups": [
            {
                "name": GROUP,
                "interval": f"{INTERVAL_S}s",
                "rules": [_rule(rule, measured[rule.slug], missing.get(rule.slug), settings) for rule in RULES],
            }
        ]
    }


def alert_name(rule: Rule) -> str:
    """Return what the alert is called: TallystreamLagStatus."""
    return "Tallystream" + rule.title.title().replace(" ", "")


def _rule(rule: Rule, measured: str, missing: str | None, settings: Settings) -> dict[str, Any]:
    limit = rule.limit(settings.thresholds)
    return {
        "alert": alert_name(rule),
        "expr": f"({measured}) > {limit:g}" + (f" or {missing}" if missing else ""),
        "for": f"{rule.for_s}s",
        "labels": labels(rule),
        "annotations": notes(rule, settings, value=_VALUE, label=_LABEL),
    }
