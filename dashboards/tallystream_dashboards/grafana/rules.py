"""The alert rules of `files/rules.yaml`: threshold, severity, the texts of their notifications, and their queries."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import yaml

from tallystream_aggregator.sinks.influxdb.flux import literal

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

FILES = Path(__file__).with_name("files")

GROUP = "tallystream"
"""The only group of rules, and the label `owner` of every rule."""

INTERVAL_S = 60
"""How often the rules are evaluated, in seconds."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One alert rule. It fires when its query's result is above the threshold for `for_s` seconds.

    Args:
        slug: the end of its uid and its anchor in the runbook; it never changes.
        title: its name in Grafana; without spaces, the alert's name in Prometheus.
        severity: critical alerts need attention at once, warnings during working hours.
        for_s: how long the result must be above the threshold, in seconds.
        threshold: the field of `Thresholds`; empty: the threshold is 0.
        inclusive: also fire if the result equals the threshold, which must be an integer.
        labels: the labels that identify its alerts.
        summary: one line for the notification.
        reason: what the alert means.
        action: what to do first.
        dashboard: the dashboard with the panel.
        panel: the title of the panel that shows the measured values.
        no_data: the state if the query has no result.
        flux, prometheus: the query by flavour.
        prometheus_absence: an expression that is true if series have been missing for as long as the limit.
    """

    slug: str
    title: str
    severity: Literal["critical", "warning"]
    for_s: int
    threshold: str = ""
    inclusive: bool = False
    labels: tuple[str, ...] = ()
    summary: str
    reason: str
    action: str
    dashboard: str
    panel: str
    no_data: Literal["OK", "Alerting"] = "OK"
    flux: str
    prometheus: str
    prometheus_absence: str = ""

    def limit(self, settings: Settings) -> float:
        """Return the number above which the rule fires."""
        number = float(getattr(settings.thresholds, self.threshold)) if self.threshold else 0.0
        return number - 1 if self.inclusive else number

    def query(self, settings: Settings) -> str:
        """Return the query of the settings' flavour."""
        text = self.flux if settings.flavour == "flux" else self.prometheus
        return (text % _numbers(settings)).rstrip("\n")

    def annotations(self, settings: Settings, *, value: str, label: str) -> dict[str, str]:
        """Return the texts of the notification, for Grafana or Prometheus.

        `value` is the template of the measured number, `label` that of a label, with `NAME` for its name.
        """

        def filled(text: str) -> str:
            message = text % _numbers(settings)
            return re.sub(r"{{(\w+)}}", lambda m: value if m[1] == "value" else label.replace("NAME", m[1]), message)

        return {
            "summary": filled(self.summary),
            "description": f"{filled(self.reason)} What to do: {filled(self.action)}",
            "runbook_url": f"{settings.runbook_url}#{self.slug}",
        }

    def routing_labels(self) -> dict[str, str]:
        """Return the labels by which alerts are routed."""
        return {"severity": self.severity, "owner": GROUP}


RULES = msgspec.convert(yaml.safe_load((FILES / "rules.yaml").read_text(encoding="utf-8")), tuple[Rule, ...])
"""Every rule; each has a section in docs/runbook.md."""


def _numbers(settings: Settings) -> dict[str, Any]:
    minutes = settings.thresholds.stopped_minutes
    return {
        **asdict(settings.thresholds),
        "bucket": literal(settings.bucket),
        # Neither Flux nor PromQL multiplies a duration.
        "stopped_minutes_5": 5 * minutes,
        "stopped_minutes_36": 36 * minutes,
        "stopped_minutes_fifth_s": 12 * minutes,
    }


def alert_name(rule: Rule) -> str:
    """Return the name of the alert in Prometheus, as in TallystreamLagStatus."""
    return "Tallystream" + rule.title.title().replace(" ", "")


def rules_file(settings: Settings) -> dict[str, Any]:
    """Return the content of a rules file of Prometheus ("Alerting rules", prometheus.io/docs)."""
    rules = []
    for rule in RULES:
        absence = rule.prometheus_absence % _numbers(settings)
        expression = f"({rule.query(settings)}) > {rule.limit(settings):g}" + (f" or {absence}" if absence else "")
        rules.append(
            {
                "alert": alert_name(rule),
                "expr": expression,
                "for": f"{rule.for_s}s",
                "labels": rule.routing_labels(),
                "annotations": rule.annotations(
                    settings, value='{{ printf "%.0f" $value }}', label="{{ $labels.NAME }}"
                ),
            }
        )
    return {"groups": [{"name": GROUP, "interval": f"{INTERVAL_S}s", "rules": rules}]}
