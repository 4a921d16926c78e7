"""A few small resources, and a pusher that sends them to the stub of Grafana."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tallystream_dashboards.grafana.push.job import PushFailedError, PushRefusedError, PushSettings, run
from tallystream_dashboards.grafana.resources import Resources, resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.settings import Settings

TOKEN = "glsa_the-token-of-grafana"
SECRETS = {
    "GRAFANA_TOKEN": TOKEN,
    "INFLUXDB_TOKEN": "the-token-of-influxdb",
    "TALLYSTREAM_ALERT_URL": "https://alerts.example.org/hook/the-secret-path",
}


def rule(name: str, limit: int = 300) -> dict[str, Any]:
    """Return an alert rule of the group `lag`."""
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
    """Return a dashboard with panels of these titles."""
    panels = [{"id": i, "title": title, "type": "timeseries"} for i, title in enumerate(titles, 1)]
    return {
        "uid": f"tallystream-{name}",
        "title": name.capitalize(),
        "tags": ["tallystream"],
        "schemaVersion": 41,
        "panels": panels,
        "time": {"from": "now-1h", "to": "now"},
    }


def generator(change: Callable[[Resources], object] = lambda _: None) -> Callable[[Settings], Resources]:
    """Return a function that generates a folder, a data source, two dashboards, a group of two rules, a contact point.

    `change` may change all resources in place.
    """

    def generate(settings: Settings) -> Resources:
        boards = {one["uid"]: one for one in (dashboard("overview", "Sums", "Rates"), dashboard("lag", "Worst"))}
        group = {"title": "lag", "folderUid": "tallystream-folder", "interval": 60, "rules": [rule("a"), rule("b", 9)]}
        generated = copy.deepcopy(replace(resources(settings), dashboards=boards, rule_group=group))
        change(generated)
        return generated

    return generate


class Pusher:
    """Pushes to the stub, and keeps the output and the exit code of the last push."""

    def __init__(self, grafana: GrafanaStub) -> None:
        self.grafana, self.output, self.code = grafana, "", 0

    def __call__(
        self,
        change: Callable[[Resources], object] = lambda _: None,
        *,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Push the small resources with the change, and return the writes; no secret is in the output."""
        self.grafana.writes.clear()
        lines: list[str] = []
        settings = PushSettings(url=self.grafana.url, **options)
        try:
            self.code = run(settings, lines.append, env=env or SECRETS, generate=generator(change))
        finally:
            self.output = "\n".join(lines)
            assert not any(secret in self.output for secret in SECRETS.values())
        return list(self.grafana.writes)

    def refused(self, change: Callable[[Resources], object] = lambda _: None, **options: Any) -> str:
        """Push, and return why it was refused; nothing was written."""
        with pytest.raises(PushRefusedError) as raised:
            self(change, **options)
        assert self.grafana.writes == []
        return str(raised.value)

    def failed(self, change: Callable[[Resources], object] = lambda _: None) -> str:
        """Push, and return the message of its failure."""
        with pytest.raises(PushFailedError) as raised:
            self(change)
        return str(raised.value)


def save_as_person(grafana: GrafanaStub, uid: str, title: str) -> None:
    """Save a dashboard with another title, as a person does in Grafana."""
    saved = grafana.state.dashboards[uid]
    body = {"dashboard": saved["dashboard"] | {"title": title}, "folderUid": saved["meta"]["folderUid"], "message": ""}
    assert grafana.state.save_dashboard(body, "anna")[0] == 200
