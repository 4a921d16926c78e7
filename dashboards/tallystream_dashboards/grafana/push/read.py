"""Read what Grafana has: of what is wanted, and of what an earlier push made."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from tallystream_dashboards.grafana.push import fingerprints as marks
from tallystream_dashboards.grafana.push.model import JSON, Found, FoundDashboard

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.push.client import Grafana
    from tallystream_dashboards.grafana.resources import Resources

MOST = 5000
"""How many dashboards of one folder Grafana lists."""


def read(grafana: Grafana, wanted: Resources) -> Found:
    """Return what is there. Writes nothing.

    Raises:
        ConfigError: Grafana does not answer, or does not let the token read.
    """
    owner = wanted.folder["uid"]
    folder = grafana.find("read the folder", f"/folders/{owner}")
    rules = grafana.ask("read the alert rules", "GET", "/v1/provisioning/alert-rules") or []
    places = {rule["uid"]: (rule["folderUID"], rule["ruleGroup"]) for rule in rules}
    titles = dict.fromkeys(title for uid, title in places.values() if uid == owner)
    groups = {title: read_group(grafana, owner, title) for title in titles}
    return Found(
        folder=folder,
        datasources=_datasources(grafana, wanted),
        dashboards=_dashboards(grafana, wanted, owner if folder is not None else None),
        rule_groups={title: group for title, group in groups.items() if group is not None},
        rule_places=places,
        contact_points=grafana.ask("read the contact points", "GET", "/v1/provisioning/contact-points") or [],
    )


def read_group(grafana: Grafana, folder_uid: str, title: str) -> JSON | None:
    """Return a rule group, None where there is none."""
    found: JSON | None = grafana.find("read a rule group", group_path(folder_uid, title))
    return found


def group_path(folder_uid: str, title: str) -> str:
    """Return the path of a rule group in Grafana's API."""
    return f"/v1/provisioning/folder/{folder_uid}/rule-groups/{quote(title, safe='')}"


def read_datasource(grafana: Grafana, uid: str) -> JSON:
    """Return a data source with what the list of them leaves out."""
    found: JSON = grafana.ask("read a data source", "GET", f"/datasources/uid/{uid}")
    return found


def _datasources(grafana: Grafana, wanted: Resources) -> dict[str, JSON]:
    uids = {one["uid"] for one in wanted.datasources}
    listed = grafana.ask("read the data sources", "GET", "/datasources") or []
    return {
        one["uid"]: read_datasource(grafana, one["uid"])
        if one["uid"] in uids or marks.datasource_mark(one) is not None
        else one
        for one in listed
    }


def _dashboards(grafana: Grafana, wanted: Resources, folder_uid: str | None) -> dict[str, FoundDashboard]:
    uids = dict.fromkeys(wanted.dashboards)
    if folder_uid is not None:
        query = {"type": "dash-db", "folderUIDs": folder_uid, "limit": str(MOST)}
        listed = grafana.ask("search", "GET", "/search", query=query) or []
        uids |= dict.fromkeys(one["uid"] for one in listed)
    found = {uid: _dashboard(grafana, uid) for uid in uids}
    return {uid: one for uid, one in found.items() if one is not None}


def _dashboard(grafana: Grafana, uid: str) -> FoundDashboard | None:
    answer = grafana.find("read a dashboard", f"/dashboards/uid/{uid}")
    if answer is None:
        return None
    meta = answer.get("meta") or {}
    return FoundDashboard(
        model=answer["dashboard"],
        folder_uid=meta.get("folderUid") or "",
        message=_message(grafana, uid),
        provisioned=bool(meta.get("provisioned")),
        by=meta.get("updatedBy") or "",
        at=meta.get("updated") or "",
    )


def _message(grafana: Grafana, uid: str) -> str:
    """Return the message of the newest version; empty where it is that of the version before: nobody's own."""
    answer = grafana.find("read a dashboard's versions", f"/dashboards/uid/{uid}/versions", query={"limit": "2"})
    versions = answer.get("versions") if isinstance(answer, dict) else answer
    newest = sorted(versions or [], key=lambda one: -int(one.get("version") or 0))
    messages = [str(one.get("message") or "") for one in newest[:2]]
    return "" if not messages or messages.count(messages[0]) > 1 else messages[0]
