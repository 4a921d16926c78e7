"""A few resources in the shapes that are pushed to Grafana, small enough to be looked through."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.resources import Resources, resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_dashboards.grafana.settings import Settings

TOKEN = "glsa_the-token-of-grafana"
SECRETS = {
    "GRAFANA_TOKEN": TOKEN,
    "INFLUXDB_TOKEN": "the-token-of-influxdb",
    "TALLYSTREAM_ALERT_URL": "https://alerts.example.org/hook/the-secret-path",
}


def rule(name: str, limit: int = 300) -> dict[str, Any]:
    """Return an alert rule as it is pushed."""
    query = {"refId": "A", "query": f'from(bucket: "tallystream") |> filter(fn: (r) => r._value > {limit})'}
    return {
        "uid": f"tallystream-rule-{name}",
        "title": f"Lag of {name}",
        "folderUID": "tallystream-folder",
        "ruleGroup": "lag",
        "condition": "A",
        "data": [
            {
                "refId": "A",
                "datasourceUid": "tallystream-flux",
                "relativeTimeRange": {"from": 600, "to": 0},
                "model": query,
            }
        ],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": "300s",
        "annotations": {"summary": "It lags.", "runbook_url": "docs/runbook.md#lag"},
        "labels": {"severity": "critical"},
        "notification_settings": {"receiver": "Tallystream"},
    }


def dashboard(name: str, *titles: str) -> dict[str, Any]:
    """Return a dashboard as it is pushed."""
    panels = [{"id": i, "title": title, "type": "timeseries"} for i, title in enumerate(titles, 1)]
    return {
        "uid": f"tallystream-{name}",
        "title": name.capitalize(),
        "tags": ["tallystream"],
        "schemaVersion": 41,
        "panels": panels,
        "time": {"from": "now-1h", "to": "now"},
    }


def made(change: Callable[[Resources], object] = lambda _: None) -> Callable[[Settings], Resources]:
    """Return what generates a folder, a data source, two dashboards, a group of two rules and a contact point.

    `change` may change all of it in place.
    """

    def make(settings: Settings) -> Resources:
        boards = {one["uid"]: one for one in (dashboard("overview", "Sums", "Rates"), dashboard("lag", "Worst"))}
        group = {"title": "lag", "folderUid": "tallystream-folder", "interval": 60, "rules": [rule("a"), rule("b", 9)]}
        base = resources(settings)
        found = Resources(
            folder=base.folder,
            datasources=base.datasources,
            dashboards=boards,
            rule_groups=[group],
            contact_point=base.contact_point,
        )
        changed = copy.deepcopy(found)
        change(changed)
        return changed

    return make
