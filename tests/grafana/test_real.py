"""`dashboards push` against a real Grafana that GRAFANA_URL and GRAFANA_TOKEN name. What it writes is deleted."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.grafana_push import SECRETS
from tallystream.errors import ConfigError
from tallystream_dashboards.grafana.push.client import Grafana
from tallystream_dashboards.grafana.push.job import PushRefusedError, PushSettings, run
from tallystream_dashboards.grafana.push.secrets import Secrets
from tallystream_dashboards.grafana.resources import resources
from tallystream_dashboards.grafana.settings import FLAVOURS, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        *(f"/v1/provisioning/alert-rules/{one['uid']}" for one in wanted.rule_group["rules"]),
        *(f"/dashboards/uid/{uid}" for uid in wanted.dashboards),
        f"/folders/{wanted.folder['uid']}",
        f"/datasources/uid/{wanted.datasource['uid']}",
        f"/v1/provisioning/contact-points/{wanted.contact_point['uid']}",
    ):
        with suppress(ConfigError):  # it was not written
            grafana.request("clean up", "DELETE", path)


def server() -> Grafana:
    """Return the client of the real server."""
    secrets = Secrets(os.environ)
    return Grafana(URL, secrets.get("GRAFANA_TOKEN", "set it"), secrets)


def push(settings: PushSettings, **options: Any) -> list[str]:
    """Push, and return the output."""
    lines: list[str] = []
    env = {**SECRETS, "GRAFANA_TOKEN": os.environ.get("GRAFANA_TOKEN", "")}
    env |= {key: value for key, value in os.environ.items() if key == "GRAFANA_TOKEN_FILE"}
    assert run(replace(settings, **options), lines.append, env=env) == 0
    return lines


def test_push_and_overwrite(settings: PushSettings) -> None:
    """Create, push again, and refuse and overwrite a manual change. Grafana lets nobody change the rules."""
    grafana, wanted = server(), resources(settings.generate)
    assert "created" in push(settings)[-1]
    assert "created" not in push(settings)[-1]
    assert "updated" not in push(settings)[-1]

    uid = next(iter(wanted.dashboards))
    saved = grafana.request("read it", "GET", f"/dashboards/uid/{uid}")
    changed_dashboard = {
        "dashboard": saved["dashboard"] | {"title": "By hand"},
        "folderUid": saved["meta"]["folderUid"],
    }
    grafana.request("change it", "POST", "/dashboards/db", changed_dashboard)
    path = f"/v1/provisioning/alert-rules/{wanted.rule_group['rules'][0]['uid']}"
    assert grafana.request("read it", "GET", path)["provenance"] == "api"
    with pytest.raises(PushRefusedError) as raised:
        push(settings)
    assert uid in str(raised.value)
    push(settings, force=True)
    assert "updated" not in push(settings)[-1]
