"""`dashboards push` against a real Grafana that GRAFANA_URL and GRAFANA_TOKEN name. What it writes is deleted."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tallystream.errors import ConfigError
from tallystream_dashboards.grafana.client import Grafana
from tallystream_dashboards.grafana.generate import dashboards, rule_group
from tallystream_dashboards.grafana.push import PushRefusedError, run
from tallystream_dashboards.grafana.settings import FLAVOURS, Settings

URL = os.environ.get("GRAFANA_URL", "")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not URL, reason="no push to a real Grafana: set GRAFANA_URL and GRAFANA_TOKEN"),
]


@pytest.fixture(params=FLAVOURS)
def settings(request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Settings with a random uid prefix, and a data source; all resources with it are deleted at the end."""
    prefix = f"t{uuid.uuid4().hex[:8]}"
    generate = Settings(flavour=request.param, uid_prefix=prefix, folder_title=prefix)
    grafana, plugin = Grafana(URL, os.environ), "influxdb" if request.param == "flux" else "prometheus"
    source = {"uid": generate.source_uid, "name": prefix, "type": plugin, "access": "proxy", "url": generate.url}
    grafana.request("create a data source", "POST", "/datasources", source)
    yield generate
    for path in (
        *(f"/v1/provisioning/alert-rules/{one['uid']}" for one in rule_group(generate)["rules"]),
        *(f"/dashboards/uid/{uid}" for uid in dashboards(generate)),
        f"/folders/{prefix}-folder",
        f"/datasources/uid/{generate.source_uid}",
    ):
        with suppress(ConfigError):  # it was not written
            grafana.request("clean up", "DELETE", path)


def push(settings: Settings, **options: Any) -> str:
    """Push, and return the last line of the output."""
    lines: list[str] = []
    assert run(Grafana(URL, os.environ), settings, lines.append, **options) == 0
    return lines[-1]


def test_push_and_overwrite(settings: Settings) -> None:
    """Create, push again, and refuse and overwrite a manual change. Grafana lets nobody change the rules."""
    grafana, models = Grafana(URL, os.environ), dashboards(settings)
    assert push(settings) == f"Done: {len(models) + 2} created."
    again = f"Done: {len(models) + 1} unchanged, 1 updated."
    assert push(settings) == again

    uid = next(iter(models))
    saved = grafana.request("read it", "GET", f"/dashboards/uid/{uid}")
    changed = {"dashboard": saved["dashboard"] | {"title": "By hand"}, "folderUid": saved["meta"]["folderUid"]}
    grafana.request("change it", "POST", "/dashboards/db", changed)
    path = f"/v1/provisioning/alert-rules/{rule_group(settings)['rules'][0]['uid']}"
    assert grafana.request("read it", "GET", path)["provenance"] == "api"
    with pytest.raises(PushRefusedError) as raised:
        push(settings)
    assert uid in str(raised.value)
    push(settings, force=True)
    assert push(settings) == again
