"""The plan for what an earlier push made and is no longer wanted: removed, unless a person changed it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.push import fingerprints as marks
from tallystream_dashboards.grafana.push.decision import Hands, dashboard_verdict, datasource_verdict, group_verdict
from tallystream_dashboards.grafana.push.model import Action, Found, Kind, What

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_dashboards.grafana.push.decision import Verdict
    from tallystream_dashboards.grafana.resources import Resources


def removals(wanted: Resources, found: Found, hands: Hands) -> Iterator[Action]:
    """Yield what is to be removed: rules before dashboards, and what they read last. Only what bears our mark."""
    owner = wanted.folder["uid"]
    titles = {group["title"] for group in wanted.rule_groups}
    for title, group in found.rule_groups.items():
        known = marks.group_mark(group)
        if title not in titles and known is not None and known.owner == owner:
            judged = group_verdict(group, known, same=False, moved="", hands=hands)
            yield _removal(What.RULES, title, title, judged, was=group)
    prefix = owner.removesuffix("folder")
    for uid, dashboard in found.dashboards.items():
        # One that a person saved has lost its mark: the uid, and the folder, tell that it was ours.
        ours = dashboard.folder_uid == owner and (uid.startswith(prefix) or marks.pushed(dashboard.message) is not None)
        if uid not in wanted.dashboards and ours:
            judged = dashboard_verdict(dashboard, owner, "", same=False, hands=hands)
            yield _removal(What.DASHBOARD, uid, dashboard.model.get("title", uid), judged, was=dashboard.model)
    uids = {one["uid"] for one in wanted.datasources}
    for uid, one in found.datasources.items():
        known = marks.datasource_mark(one)
        if uid not in uids and known is not None and known.owner == owner:
            judged = datasource_verdict(one, known, same=False, hands=hands)
            yield _removal(What.DATASOURCE, uid, one.get("name", uid), judged, was=one)


def _removal(what: What, uid: str, name: str, judged: Verdict, *, was: dict[str, object]) -> Action:
    kind, reason = judged
    kind = Kind.REMOVE if kind in (Kind.UNCHANGED, Kind.UPDATE) else kind
    return Action(kind, what, uid, name, was=was, reason=reason or "it is no longer wanted")
