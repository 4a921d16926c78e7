"""What an alert rule is: when it fires, and what it says.

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
        slug: its name for ever: the end of its uid, and its anchor in the runbook.
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
        """Return one of its texts: with the thresholds, and the templates of whoever sends the notification.

        `value` is the template of what was measured, `label` that of a label, with `NAME` in the place of its name.
        """
        said = text % asdict(thresholds)
        return re.sub(r"{{(\w+)}}", lambda m: value if m[1] == "value" else label.replace("NAME", m[1]), said)
