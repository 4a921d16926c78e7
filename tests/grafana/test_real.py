"""`dashboards push` against a real Grafana that GRAFANA_URL and GRAFANA_TOKEN name. What it writes is deleted."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.grafana_push import SECRETS
from tallystream_dashboards.grafana.push.client import Grafana, NotFoundError
from tallystream_dashboards.grafana.push.job import PushSettings, run
from tallystream_dashboards.grafana.push.model import PushRefusedError
from tallystream_dashboards.grafana.push.secrets import Secrets
from tallystream_dashboards.grafana.resources import resources
from tallystream_dashboards.grafana.settings import FLAVOURS, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_dashboards.grafana.resources import Resources

URL = os.environ.get("GRAFANA_URL", "")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not URL, reason="no push to a real Grafana: set GRAFANA_URL and GRAFANA_TOKEN"),
]


@pytest.fixture(params=FLAVOURS)
def settings(request: pytest.FixtureRequest) -> Iterator[PushSettings]:
    """Settings with a random uid prefix; all resources with it are deleted at the end."""
    prefix = f"t{uuid.uuid4().hex[:8]}"
    generate = Settings(flavour=request.param, uid_prefix=prefix, folder_title=prefix)
    yield PushSettings(url=URL, generate=generate)
    grafana, wanted = server(), resources(generate)
    for path in (
        *(f"/v1/provisioning/alert-rules/{one['uid']}" for group in wanted.rule_groups for one in group["rules"]),
        *(f"/dashboards/uid/{uid}" for uid in wanted.dashboards),
        f"/folders/{wanted.folder['uid']}",
        *(f"/datasources/uid/{one['uid']}" for one in wanted.datasources),
        f"/v1/provisioning/contact-points/{wanted.contact_point['uid']}",
    ):
        try:
            grafana.request("clean up", "DELETE", path)
        except NotFoundError:
            continue


def server() -> Grafana:
    """Return the client of the real server."""
    secrets = Secrets(os.environ)
    return Grafana(URL, secrets.get("GRAFANA_TOKEN", "set it"), secrets)


def push(settings: PushSettings, **options: Any) -> list[str]:
    """Push, and return the output."""
    lines: list[str] = []
    env = {**SECRETS, "GRAFANA_TOKEN": os.environ.get("GRAFANA_TOKEN", "")}
    env |= {key: value for key, value in os.environ.items() if key == "GRAFANA_TOKEN_FILE"}
    generate = options.pop("generator", resources)
    assert run(replace(settings, **options), lines.append, env=env, generate=generate) == 0
    return lines


def test_push_change_and_prune(settings: PushSettings) -> None:
    """Create, push again, refuse and overwrite manual changes, and prune."""
    grafana, wanted = server(), resources(settings.generate)
    assert "created" in push(settings)[-1]
    assert push(settings, prune=True)[-1].endswith("nothing to do.")

    uid = next(iter(wanted.dashboards))
    saved = grafana.request("read it", "GET", f"/dashboards/uid/{uid}")
    changed_dashboard = {
        "dashboard": saved["dashboard"] | {"title": "By hand"},
        "folderUid": saved["meta"]["folderUid"],
    }
    grafana.request("change it", "POST", "/dashboards/db", changed_dashboard)
    for group in wanted.rule_groups:  # none for InfluxQL
        path = f"/v1/provisioning/alert-rules/{group['rules'][0]['uid']}"
        changed_rule = grafana.request("read it", "GET", path) | {"isPaused": True}
        grafana.request("change it", "PUT", path, changed_rule, editable=True)
    with pytest.raises(PushRefusedError) as raised:
        push(settings)
    assert uid in str(raised.value)
    assert all(f"rule group {group['title']}" in str(raised.value) for group in wanted.rule_groups)
    count = 1 + len(wanted.rule_groups)
    assert push(settings, on_manual_change="overwrite")[-1].startswith(f"Done: {count} updated")
    assert push(settings)[-1].endswith("nothing to do.")

    def without_one(generate: Settings) -> Resources:
        generated = resources(generate)
        dashboards = {name: one for name, one in generated.dashboards.items() if name != uid}
        return replace(generated, dashboards=dashboards, rule_groups=[])

    assert push(settings, prune=True, generator=without_one)[-1].startswith(f"Done: {count} removed")
