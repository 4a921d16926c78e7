"""Read what Grafana has: of what is wanted, and of what an earlier push made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tallystream_dashboards.grafana.push import fingerprints as marks
from tallystream_dashboards.grafana.push.client import AbsentError
from tallystream_dashboards.grafana.push.model import JSON, Found, FoundDashboard

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_dashboards.grafana.push.client import Grafana
    from tallystream_dashboards.grafana.resources import Resources

MOST = 5000
"""How many dashboards of one folder Grafana lists."""


def read(grafana: Grafana, wanted: Resources) -> Found:
    """Return what is there. Writes nothing.

    Raises:
        ConfigError: Grafana does not answer, or does not let the token read.
    """
    api, owner = grafana.api, wanted.folder["uid"]
    folder = _or_none(grafana, "read the folder", api.folder.get_folder, owner)
    rules = grafana.call("read the alert rules", api.alertingprovisioning.get_alertrules_all) or []
    places = {rule["uid"]: (rule["folderUID"], rule["ruleGroup"]) for rule in rules}
    titles = dict.fromkeys(title for uid, title in places.values() if uid == owner)
    groups = {title: read_group(grafana, owner, title) for title in titles}
    return Found(
        folder=folder,
        datasources=_datasources(grafana, wanted),
        dashboards=_dashboards(grafana, wanted, owner if folder is not None else None),
        rule_groups={title: group for title, group in groups.items() if group is not None},
        rule_places=places,
        contact_points=grafana.call("read the contact points", api.alertingprovisioning.get_contactpoints) or [],
    )


def read_group(grafana: Grafana, folder_uid: str, title: str) -> JSON | None:
    """Return a rule group, None where there is none."""
    ask = grafana.api.alertingprovisioning.get_rule_group
    found: JSON | None = _or_none(grafana, "read a rule group", ask, folder_uid, quote(title, safe=""))
    return found


def read_datasource(grafana: Grafana, uid: str) -> JSON:
    """Return a data source with what the list of them leaves out."""
    found: JSON = grafana.call("read a data source", grafana.api.datasource.get_datasource_by_uid, uid)
    return found


def _datasources(grafana: Grafana, wanted: Resources) -> dict[str, JSON]:
    uids = {one["uid"] for one in wanted.datasources}
    listed = grafana.call("read the data sources", grafana.api.datasource.list_datasources) or []
    return {
        one["uid"]: read_datasource(grafana, one["uid"])
        if one["uid"] in uids or marks.datasource_mark(one) is not None
        else one
        for one in listed
    }


def _dashboards(grafana: Grafana, wanted: Resources, folder_uid: str | None) -> dict[str, FoundDashboard]:
    uids = dict.fromkeys(wanted.dashboards)
    if folder_uid is not None:
        search = grafana.api.search.search_dashboards
        listed = grafana.call("search", search, type_="dash-db", folder_uids=folder_uid, limit=MOST) or []
        uids |= dict.fromkeys(one["uid"] for one in listed)
    found = {uid: _dashboard(grafana, uid) for uid in uids}
    return {uid: one for uid, one in found.items() if one is not None}


def _dashboard(grafana: Grafana, uid: str) -> FoundDashboard | None:
    answer = _or_none(grafana, "read a dashboard", grafana.api.dashboard.get_dashboard, uid)
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
    # grafana-client would send the limit where Grafana does not read it.
    asked = f"/dashboards/uid/{uid}/versions?limit=2"
    answer: Any = _or_none(grafana, "read a dashboard's versions", grafana.api.client.GET, asked)
    versions = answer.get("versions") if isinstance(answer, dict) else answer
    newest = sorted(versions or [], key=lambda one: -int(one.get("version") or 0))
    said = [str(one.get("message") or "") for one in newest[:2]]
    return "" if not said or said.count(said[0]) > 1 else said[0]


def _or_none(grafana: Grafana, doing: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return grafana.call(doing, function, *arguments)
    except AbsentError:
        return None
