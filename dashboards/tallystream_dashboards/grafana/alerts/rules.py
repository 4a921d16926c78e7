"""The alert rules: threshold, severity, and the texts of their notifications. `flux` and `prometheus` have the queries.

In a text, `%(lag_seconds)g` is a threshold, `{{value}}` the measured number, and `{{app}}` a label of the alert.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings, Thresholds

GROUP = "tallystream"
"""The only group of rules, and the label `owner` of every rule."""

INTERVAL_S = 60
"""How often the rules are evaluated, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
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

    def limit(self, thresholds: Thresholds) -> float:
        """Return the number above which the rule fires."""
        number = float(getattr(thresholds, self.threshold)) if self.threshold else 0.0
        return number - 1 if self.inclusive else number

    def text(self, text: str, thresholds: Thresholds, *, value: str, label: str) -> str:
        """Return one of the rule's texts, with the thresholds and with the templates of Grafana or Prometheus.

        `value` is the template of the measured number, `label` that of a label, with `NAME` for its name.
        """
        message = text % asdict(thresholds)
        return re.sub(r"{{(\w+)}}", lambda m: value if m[1] == "value" else label.replace("NAME", m[1]), message)

    def annotations(self, settings: Settings, *, value: str, label: str) -> dict[str, str]:
        """Return the texts of the notification; `value` and `label` are templates, as `text` takes them."""
        summary, reason, action = (
            self.text(text, settings.thresholds, value=value, label=label)
            for text in (self.summary, self.reason, self.action)
        )
        return {
            "summary": summary,
            "description": f"{reason} What to do: {action}",
            "runbook_url": f"{settings.runbook_url}#{self.slug}",
        }

    def routing_labels(self) -> dict[str, str]:
        """Return the labels by which alerts are routed."""
        return {"severity": self.severity, "owner": GROUP}


RULES = (
    Rule(
        slug="instance-silent",
        title="Instance silent",
        severity="warning",
        for_s=120,
        threshold="missing_instances",
        inclusive=True,
        labels=("app",),
        summary="{{app}}: {{value}} living instances fewer than at the maximum of the last hour",
        reason="An instance without a record for three of its reporting intervals is silent. It crashed, hangs, "
        "cannot reach Kafka, or was scaled in. Counts that it published stay in the sums.",
        action="Find the silent instance on the dashboard Instances, and check its log and its host. If it was scaled "
        "in on purpose, the alert ends by itself an hour later.",
        dashboard="metric",
        panel="Living instances",
    ),
    Rule(
        slug="sum-stopped",
        title="Sum stopped growing",
        severity="warning",
        for_s=60,
        labels=("app", "metric"),
        summary="{{metric}} of {{app}} has not grown for %(stopped_minutes)g minutes",
        reason="The sum grew in five periods of %(stopped_minutes)g minutes in a row, and then stopped: there is no "
        "input, every instance has stopped, or the sums do not arrive. The rule ignores sums that rarely grow.",
        action="If other sums of the app grow, check its input; if none does, its instances; if no sum of any app "
        "grows, the dashboard Pipeline. If it stopped on purpose, the alert ends after 36 periods.",
        dashboard="metric",
        panel="Rate",
    ),
    Rule(
        slug="lag-status",
        title="Lag status",
        severity="critical",
        for_s=60,
        labels=("group", "status"),
        summary="{{group}}: {{status}}",
        reason="STOP: records wait and the group has no members. STALL: it has members and commits nothing. REWIND: "
        "its offset went back. ERR: one of these, or the oldest unconsumed record is older than --err-age.",
        action="Run tallystream lag with the group's name: it shows since when, why, and which partitions. STOP: "
        "start the consumers. STALL: find the record at which they fail. REWIND: find out who reset the offsets.",
        dashboard="lag",
        panel="Groups",
    ),
    Rule(
        slug="lag-seconds",
        title="Lag too old",
        severity="warning",
        for_s=120,
        threshold="lag_seconds",
        labels=("group",),
        summary="{{group}}: the oldest unconsumed record is {{value}} s old",
        reason="The group is more than %(lag_seconds)g s behind, and so is everything that depends on it.",
        action="Compare production with consumption on the dashboard Lag: add consumers if consumption is at its "
        "limit, and check their logs if it has dropped.",
        dashboard="lag",
        panel="Age of the oldest unconsumed record",
    ),
    Rule(
        slug="sink-behind",
        title="Sink behind",
        severity="critical",
        for_s=120,
        threshold="sink_seconds",
        summary="The oldest sum that is not in the store is {{value}} s old",
        reason="The shipper does not keep up, or cannot write. Dashboards show old sums. Nothing is lost as long as "
        "metrics-agg keeps every row (7 days by default).",
        action="Read the shipper's /readyz: it names the store that it waits for. When the store is available, the "
        "shipper continues by itself. If the shipper has ended, start it again.",
        dashboard="pipeline",
        panel="Age of what is not in the store",
    ),
    Rule(
        slug="dead-letters",
        title="Dead letters arriving",
        severity="warning",
        for_s=0,
        threshold="dead_letters",
        summary="{{value}} dead letters in ten minutes",
        reason="Records or single metrics were rejected: they are not JSON, have numbers that can't be summed, came "
        "too late, or exceed a limit. They are in no sum. All other records are summed.",
        action="Read the newest records of the topic metrics-dead: each has the reason, and the offset of the rejected "
        "record. Fix the application that publishes it.",
        dashboard="pipeline",
        panel="Dead letters",
    ),
    Rule(
        slug="processed-twice",
        title="Processed twice",
        severity="warning",
        for_s=60,
        threshold="processed_twice",
        labels=("app", "metric"),
        summary="{{app}} processed {{value}} records of {{metric}} more than once",
        reason="More records were processed than the offsets of the positions cover: consumers read records again "
        "after a crash, a rebalance or a reset of offsets.",
        action="If processing a record twice does harm, find the time on the dashboard Metric (it marks "
        "restarts), and correct the result. The number stays: raise the threshold to the known number.",
        dashboard="metric",
        panel="Processed twice",
    ),
    Rule(
        slug="aggregator-down",
        title="Aggregator down",
        severity="critical",
        for_s=30,
        threshold="aggregator_seconds",
        summary="No aggregator has been working for more than %(aggregator_seconds)g s",
        reason="Nothing is summed. Records wait on the topic metrics. Nothing is lost within its retention (7 days by "
        "default).",
        action="Start tallystream aggregate. If it exits, its last line has the reason and "
        "the remedy. If it runs, read its /healthz and /readyz.",
        dashboard="pipeline",
        panel="Age of what is published",
        no_data="Alerting",
    ),
    Rule(
        slug="collector-down",
        title="Lag collector down",
        severity="warning",
        for_s=30,
        threshold="collector_seconds",
        summary="The lag collector has measured nothing for more than %(collector_seconds)g s",
        reason="Without measurements no alert about lag can fire, and the store has a gap.",
        action="Start tallystream lag collect. If it runs, read its /readyz: the broker or the store may be "
        "unavailable.",
        dashboard="lag",
        panel="Rounds of the collector",
        no_data="Alerting",
    ),
    Rule(
        slug="clock-skew",
        title="Clock skew",
        severity="warning",
        for_s=300,
        threshold="skew_seconds",
        labels=("group",),
        summary="Timestamps of what {{group}} reads are {{value}} s off",
        reason="A producer's clock is wrong, or the broker's if the topic has append times. The age of lag is not "
        "affected, but everything that uses the records' timestamps is: windows, joins, retention by time.",
        action="Compare the clocks of the producers and of the brokers (chronyc tracking, timedatectl), and fix the "
        "one that is off.",
        dashboard="lag",
        panel="Clock skew",
    ),
)
"""Every rule; each has a section in docs/runbook.md."""
