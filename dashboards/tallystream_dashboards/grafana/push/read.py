"""Read the state of a Grafana server: the desired resources and those of an earlier push."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from tallystream_dashboards.grafana.push import fingerprints
from tallystream_dashboards.grafana.push.model import JSON, ServerDashboard, ServerState

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.push.client import Grafana
    from tallystream_dashboards.grafana.resources import Resources

MAX_DASHBOARDS = 5000
"""Grafana's limit of search results."""


def read(grafana: Grafana, desired: Resources) -> ServerState:
    """Return the state of the server.

    Raises:
        ConfigError: Grafana does not answer, or the token may not read.
    """
    folder_uid = desired.folder["uid"]
    folder = grafana.get("read the folder", f"/folders/{folder_uid}")
    rules = grafana.request("read the alert rules", "GET", "/v1/provisioning/alert-rules") or []
    rule_groups_of = {rule["uid"]: (rule["folderUID"], rule["ruleGroup"]) for rule in rules}
    titles = dict.fromkeys(title for uid, title in rule_groups_of.values() if uid == folder_uid)
    groups = {title: read_group(grafana, folder_uid, title) for title in titles}
    return ServerState(
        folder=folder,
        datasources=_datasources(grafana, desired),
        dashboards=_dashboards(grafana, desired, in_folder=folder is not None),
        rule_groups={title: group for title, group in groups.items() if group is not None},
        rule_groups_of=rule_groups_of,
        contact_points=grafana.request("read the contact points", "GET", "/v1/provisioning/contact-points") or [],
    )


def read_group(grafana: Grafana, folder_uid: str, title: str) -> JSON | None:
    """Return a rule group, None if it does not exist."""
    group: JSON | None = grafana.get("read a rule group", group_path(folder_uid, title))
    return group


def group_path(folder_uid: str, title: str) -> str:
    """Return the path of a rule group in Grafana's API."""
    return f"/v1/provisioning/folder/{folder_uid}/rule-groups/{quote(title, safe='')}"


def read_datasource(grafana: Grafana, uid: str) -> JSON:
    """Return a data source with all fields; the list of data sources has only some of them."""
    datasource: JSON = grafana.request("read a data source", "GET", f"/datasources/uid/{uid}")
    return datasource


def _datasources(grafana: Grafana, desired: Resources) -> dict[str, JSON]:
    desired_uids = {datasource["uid"] for datasource in desired.datasources}
    listed = grafana.request("read the data sources", "GET", "/datasources") or []
    return {
        datasource["uid"]: read_datasource(grafana, datasource["uid"])
        if datasource["uid"] in desired_uids or fingerprints.of_datasource(datasource) is not None
        else datasource
        for datasource in listed
    }


def _dashboards(grafana: Grafana, desired: Resources, *, in_folder: bool) -> dict[str, ServerDashboard]:
    uids = dict.fromkeys(desired.dashboards)
    if in_folder:
        query = {"type": "dash-db", "folderUIDs": desired.folder["uid"], "limit": str(MAX_DASHBOARDS)}
        uids |= dict.fromkeys(entry["uid"] for entry in grafana.request("search", "GET", "/search", query=query) or [])
    dashboards = {uid: _dashboard(grafana, uid) for uid in uids}
    return {uid: dashboard for uid, dashboard in dashboards.items() if dashboard is not None}


def _dashboard(grafana: Grafana, uid: str) -> ServerDashboard | None:
    response = grafana.get("read a dashboard", f"/dashboards/uid/{uid}")
    if response is None:
        return None
    meta = response.get("meta") or {}
    return ServerDashboard(
        model=response["dashboard"],
        folder_uid=meta.get("folderUid") or "",
        message=_version_message(grafana, uid),
        provisioned=bool(meta.get("provisioned")),
        updated_by=meta.get("updatedBy") or "",
        updated_at=meta.get("updated") or "",
    )


def _version_message(grafana: Grafana, uid: str) -> str:
    """Return the message of the newest version; empty if it repeats that of the previous one, which no push does."""
    response = grafana.get("read a dashboard's versions", f"/dashboards/uid/{uid}/versions", query={"limit": "2"})
    versions = response.get("versions") if isinstance(response, dict) else response
    newest = sorted(versions or [], key=lambda version: -int(version.get("version") or 0))
    messages = [str(version.get("message") or "") for version in newest[:2]]
    return "" if not messages or messages.count(messages[0]) > 1 else messages[0]
