"""The alert rules: what each watches, why it matters and what to do. Their queries are in `alerts_*`.

In a text, `%(lag_seconds)g` is a threshold, `{{value}}` what was measured, `{{app}}` a label of the alert.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One alert rule. It fires when what is measured is above its threshold for `for_s` seconds.

    Args:
        slug: its name forever: the end of its uid, and its anchor in the runbook.
        title: its name for people; without its spaces, the alert's name in Prometheus.
        severity: critical is for the one on call, warning can wait for the morning.
        for_s: seconds for which it has to be so.
        threshold: the field of `Thresholds` that is compared with; empty: 0.
        reached: it fires when the threshold, a whole number, is reached, not only above it.
        labels: by which labels its alerts are told apart.
        summary: one line for the notification.
        reason: what it means.
        action: what to do first.
        dashboard, panel: what shows it.
        no_data: what it is when the query finds nothing: a thing that has to be seen is missing then.
    """

    slug: str
    title: str
    severity: Literal["critical", "warning"]
    for_s: int
    threshold: str = ""
    reached: bool = False
    labels: tuple[str, ...] = ()
    summary: str
    reason: str
    action: str
    dashboard: str
    panel: str
    no_data: Literal["OK", "Alerting"] = "OK"

    def limit(self, thresholds: Thresholds) -> float:
        """Return the number above which it fires."""
        number = float(getattr(thresholds, self.threshold)) if self.threshold else 0.0
        return number - 1 if self.reached else number

    def text(self, text: str, thresholds: Thresholds, *, value: str, label: str) -> str:
        """Return one of its texts: with the thresholds, and the templates of the sender of the notification.

        `value` is the template of what was measured, `label` that of a label, with `NAME` in the place of its name.
        """
        said = text % asdict(thresholds)
        return re.sub(r"{{(\w+)}}", lambda m: value if m[1] == "value" else label.replace("NAME", m[1]), said)


RULES = (
    Rule(
        slug="instance-silent",
        title="Instance silent",
        severity="warning",
        for_s=120,
        threshold="missing_instances",
        reached=True,
        labels=("app",),
        summary="{{app}}: {{value}} living instances fewer than at some time of the last hour",
        reason="An instance that is not heard from within three of its reporting intervals is not living any more. "
        "It crashed, hangs, lost its way to Kafka, or was scaled in. Counts that it published stay in the sums.",
        action="See on the dashboard Instances which one fell silent, and look at its log and its host. If it was "
        "scaled in on purpose, the alert ends an hour later by itself.",
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
        reason="The sum grew in five periods of %(stopped_minutes)g minutes on end, and then stopped: input has dried "
        "up, every instance stands still, or the sums do not come through. Sums that grow now and then are left out.",
        action="If other sums of the app grow, look at its input; if none does, at its instances; if no sum of any "
        "app grows, at the dashboard Pipeline. If it is meant to stand still, the alert ends after 36 periods.",
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
        action="Run tallystream lag with the group's name: it says since when, why, and which partitions. STOP: "
        "start the consumers. STALL: look for a record that they fail on. REWIND: ask who reset the offsets.",
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
        reason="The group is more than %(lag_seconds)g s behind: what depends on it sees the world as it was then.",
        action="Compare what is produced with what is consumed on the dashboard Lag: add consumers where "
        "consumption is at its limit, and look at their logs where it has dropped.",
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
        reason="The shipper does not keep up, or cannot write. Dashboards show the past; nothing is lost for as long "
        "as metrics-agg keeps every row (7 days unless you chose otherwise).",
        action="Ask the shipper's /readyz: it names the store it waits for. Fix the store, and the shipper goes on "
        "by itself; a shipper that ended is to be started again, with the same checkpoint.",
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
        reason="Records or single metrics cannot be taken: they are no JSON, hold numbers that can't be summed, came "
        "too late, or go beyond a limit. They are in no sum; everything else goes on.",
        action="Read the newest records of the topic metrics-dead: each says its reason, and the offset of what was "
        "refused. Fix the application that publishes it.",
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
        reason="Everything that was processed is more than the offsets that the positions cover: consumers took "
        "records again after a crash, a rebalance or a reset of offsets.",
        action="If processing a record twice does harm, find the moment on the dashboard Metric (restarts are marked "
        "there) and correct what was done twice. The number stays: raise --processed-twice to what is known.",
        dashboard="metric",
        panel="Processed twice",
    ),
    Rule(
        slug="aggregator-down",
        title="Aggregator down",
        severity="critical",
        for_s=30,
        threshold="aggregator_seconds",
        summary="No aggregator has done its work for more than %(aggregator_seconds)g s",
        reason="Nothing is summed. Records wait on the topic metrics, and nothing is lost for as long as its "
        "retention lasts (7 days unless you chose otherwise).",
        action="Start tallystream aggregate with the same checkpoint. If it refuses, its last line says why, and "
        "which command fixes it. If it runs, ask its /healthz and /readyz.",
        dashboard="pipeline",
        panel="Since the last batch",
        no_data="Alerting",
    ),
    Rule(
        slug="collector-down",
        title="Lag collector down",
        severity="warning",
        for_s=30,
        threshold="collector_seconds",
        summary="The lag collector has not looked for more than %(collector_seconds)g s",
        reason="While nobody looks at the lag, no alert about lag can fire, and the store has a gap.",
        action="Start tallystream lag collect. If it runs, ask its /readyz: the broker or the store is away.",
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
        reason="A producer's clock, or the broker's where the topic has append times, is wrong. Ages of lag are not "
        "touched by it; whatever goes by the records' timestamps is: windows, joins, retention by time.",
        action="Compare the clocks of the producers and of the brokers (chronyc tracking, timedatectl), and fix the "
        "one that is off.",
        dashboard="lag",
        panel="Clock skew",
    ),
)
"""Every rule; each has its section in docs/runbook.md."""
