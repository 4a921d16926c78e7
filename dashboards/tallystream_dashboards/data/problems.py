"""What is not well: a list of problems, worst first, from the newest lag and from what the pipeline reports. Pure.

Most conditions and thresholds are those of the alert rules, so a problem has the rule's section of the runbook. The
status WARN, groups that were not read, and no reporting instance have no rule.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tallystream_dashboards import formatting
from tallystream_dashboards.data.groups import AGGREGATOR, SHIPPER, role
from tallystream_dashboards.grafana.generate import alert_rules
from tallystream_dashboards.grafana.settings import Thresholds
from tallystream_dashboards.lag import time_lag
from tallystream_dashboards.lag.changes import WAITS
from tallystream_dashboards.lag.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tallystream_dashboards.data.groups import GroupsNow
    from tallystream_dashboards.data.observed import Observed
    from tallystream_dashboards.lag.state import GroupState

MAX_AGE_MS = 150_000
"""Lag that is older, in ms, says nothing about now. The longest interval of the collector is 60 s."""
OWN_METRICS_MS = 86_400_000
"""An aggregator that read its last record longer ago, in ms, is not judged: it may publish no metrics of its own."""

THRESHOLDS = Thresholds()
"""Those that the alert rules have by default."""

_OWN_RULES = {AGGREGATOR: "aggregator-down", SHIPPER: "sink-behind"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: what is not well, since when (epoch ms; None: not known) and why.

    `slug` is that of the alert rule, which has the severity and what to do. `details` are the parameters of the page's
    address that shows more. With `has_alert`, the rule fires on it, too.
    """

    what: str
    why: str
    slug: str
    since_ms: int | None = None
    severity: Literal["critical", "warning"] = "warning"
    details: Mapping[str, str] = field(default_factory=dict)
    has_alert: bool = True


def problems(groups: GroupsNow, observed: Observed, *, now_ms: int, limits: Thresholds = THRESHOLDS) -> list[Problem]:
    """Return what is not well at `now_ms`. First comes outdated lag, then what is critical, then warnings.

    Without a round of the collector nothing is known.
    """
    if groups.round_ms is None:
        return []
    outdated = list(_outdated(groups.round_ms, now_ms))
    present = [state for state in groups.states if not state.gone]
    lag = list(_lag(present, limits))
    shipper_works = not any(problem.slug == "sink-behind" for problem in lag)
    found = [
        *(_aggregator(observed, now_ms, limits) if shipper_works else ()),
        *lag,
        # Those that fell silent say more than that no instance reports.
        *(list(_silent_instances(observed, limits)) or _no_instance(observed)),
        *_dead_letters(observed, limits),
        *_not_read(present),
    ]
    return [*outdated, *sorted(found, key=lambda one: one.severity != "critical")]


def action(alike: Sequence[Problem]) -> str:
    """Return what to do first about problems of one kind: what their alert rule says of all and of their statuses.

    A command has the name of their app if they have the same one. Without a name it lists all apps.
    """
    sentences = alert_rules()[alike[0].slug].action.split(". ")
    whys = " ".join(one.why for one in alike)
    statuses = {status.name for status in Status}
    fits = {name for name in statuses if f"{name} in " in whys or WAITS.format(name) in whys}
    fitting = [one for one in sentences if one.partition(":")[0] not in statuses - fits]
    text = ". ".join(one.removesuffix(".") for one in fitting if not one.startswith("The alert ends")) + "."
    apps = {one.details.get("app") for one in alike}
    app = apps.pop() if len(apps) == 1 else None
    name = "" if app is None else f" {shlex.quote(app)}"
    return text.replace(" {{ $labels.app }}", name)


def _outdated(round_ms: int, now_ms: int) -> Iterator[Problem]:
    if now_ms - round_ms > MAX_AGE_MS:
        ago = formatting.duration((now_ms - round_ms) / 1000)
        yield Problem(
            f"No lag has been collected for {ago}",
            "The lag on this page is the last that is known.",
            "collector-down",
            since_ms=round_ms,
            details={"view": "groups"},
        )


def _aggregator(observed: Observed, now_ms: int, limits: Thresholds) -> Iterator[Problem]:
    if observed.read_ms is None:
        return
    age_ms = now_ms - observed.read_ms
    if limits.aggregator_seconds * 1000 < age_ms < OWN_METRICS_MS:
        yield Problem(
            "No aggregator works",
            f"It last read a record {formatting.duration(age_ms / 1000)} ago. Records wait on the topic metrics.",
            "aggregator-down",
            since_ms=observed.read_ms,
            severity="critical",
            details={"view": "groups"},
        )


def _lag(present: Iterable[GroupState], limits: Thresholds) -> Iterator[Problem]:
    """Return a problem for each group that is ERR or WARN, or will be ERR, or whose oldest unread record is too old."""
    for state in present:
        status, own = state.evaluation.status, role(state.group)
        limit_s = limits.sink_seconds if own == SHIPPER else limits.lag_seconds
        late = state.time_lag is not None and state.time_lag.seconds > limit_s
        bad = status in (Status.ERR, Status.WARN)
        stops = any(WAITS.format(one.name) in state.evaluation.reason for one in Status if one > Status.ERR)
        if bad:
            what = f"Group {state.group} is {status.name}"
        elif late:
            what = f"Group {state.group} is {time_lag.text(state.time_lag)} behind"
        elif stops:
            what = f"Group {state.group} will be ERR unless it goes on"
        else:
            continue
        yield Problem(
            what,
            state.evaluation.reason,
            _OWN_RULES.get(own, "lag-status" if status is Status.ERR or (stops and not late) else "lag-seconds"),
            since_ms=state.since_ms if bad else None,
            severity="critical" if status is Status.ERR or (late and own == SHIPPER) else "warning",
            details={"view": "groups", "group": state.group},
            has_alert=late or status is Status.ERR,
        )


def _no_instance(observed: Observed) -> Iterator[Problem]:
    """Return a problem if no app has a living instance, and one fell silent earlier. If all have ended, all is well."""
    if any(app.silent for app in observed.apps) and not any(app.living for app in observed.apps):
        yield Problem(
            "No instance reports",
            "Every instance of every app has ended or is silent. This stays until one reports.",
            "instance-silent",
            since_ms=max(app.silent_since_ms for app in observed.apps if app.silent_since_ms is not None),
            details={"view": "metrics"},
            has_alert=False,
        )


def _silent_instances(observed: Observed, limits: Thresholds) -> Iterator[Problem]:
    for app in observed.apps:
        if app.fell_silent >= limits.silent_instances:
            yield Problem(
                f"{formatting.counted(app.fell_silent, 'instance')} of the app {app.name} fell silent",
                f"In the last hour, with no record for three reporting intervals and no final one: a crash, a hang, or "
                f"no way to Kafka. The app's instances: {app.text}.",
                "instance-silent",
                since_ms=app.silent_since_ms,
                details={"view": "metrics", "app": app.name},
            )


def _dead_letters(observed: Observed, limits: Thresholds) -> Iterator[Problem]:
    if observed.dead_letters > limits.dead_letters:
        yield Problem(
            f"{formatting.counted(observed.dead_letters, 'dead letter')} in ten minutes",
            "Records or single metrics were rejected, and are in no sum. All other records are summed.",
            "dead-letters",
            since_ms=observed.dead_letters_since_ms,
            details={"view": "groups"},
        )


def _not_read(present: Iterable[GroupState]) -> Iterator[Problem]:
    names = [state.group for state in present if state.stale]
    if names:
        first, more = names[0], f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        yield Problem(
            f"The newest round did not read all of {first}{more}",
            "The status is the last one that is known. The collector's log names what did not answer.",
            "lag-status",
            details={"view": "groups", "group": first},
            has_alert=False,
        )
