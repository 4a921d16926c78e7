"""`dashboards push` against a real Grafana, where GRAFANA_URL and GRAFANA_TOKEN name one; nothing of it stays there."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.grafana_made import SECRETS
from tallystream_dashboards.grafana.push.client import AbsentError, Grafana
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
    pytest.mark.skipif(
        not URL, reason="no GRAFANA_URL: nothing is pushed to a real Grafana; set it, and GRAFANA_TOKEN, to one"
    ),
]


@pytest.fixture(params=FLAVOURS)
def settings(request: pytest.FixtureRequest) -> Iterator[PushSettings]:
    """What pushes under a uid prefix that nobody else has; at the end all of it is deleted again."""
    prefix = f"t{uuid.uuid4().hex[:8]}"
    made = Settings(flavour=request.param, uid_prefix=prefix, folder_title=prefix)
    yield PushSettings(url=URL, made=made)
    grafana, wanted = server(), resources(made)
    for path in (
        *(f"/v1/provisioning/alert-rules/{one['uid']}" for group in wanted.rule_groups for one in group["rules"]),
        *(f"/dashboards/uid/{uid}" for uid in wanted.dashboards),
        f"/folders/{wanted.folder['uid']}",
        *(f"/datasources/uid/{one['uid']}" for one in wanted.datasources),
        f"/v1/provisioning/contact-points/{wanted.contact_point['uid']}",
    ):
        try:
            grafana.ask("clean up", "DELETE", path)
        except AbsentError:
            continue


def server() -> Grafana:
    """Return the real one."""
    secrets = Secrets(os.environ)
    return Grafana(URL, secrets.get("GRAFANA_TOKEN", "set it"), secrets)


def push(settings: PushSettings, **options: Any) -> list[str]:
    """Push, and return what is said."""
    said: list[str] = []
    env = {**SECRETS, "GRAFANA_TOKEN": os.environ.get("GRAFANA_TOKEN", "")}
    env |= {key: value for key, value in os.environ.items() if key == "GRAFANA_TOKEN_FILE"}
    make = options.pop("make", resources)
    assert run(replace(settings, **options), said.append, env=env, make=make) == 0
    return said


def test_push_change_and_prune(settings: PushSettings) -> None:
    """Everything is created; then nothing is to do; a change by hand is refused and overwritten; prune removes."""
    grafana, wanted = server(), resources(settings.made)
    assert "created" in push(settings)[-1]
    assert push(settings, prune=True)[-1].endswith("nothing to do.")

    uid = next(iter(wanted.dashboards))
    was = grafana.ask("read it", "GET", f"/dashboards/uid/{uid}")
    by_hand = {"dashboard": was["dashboard"] | {"title": "By hand"}, "folderUid": was["meta"]["folderUid"]}
    grafana.ask("change it", "POST", "/dashboards/db", by_hand)
    rule = wanted.rule_groups[0]["rules"][0]["uid"]
    path = f"/v1/provisioning/alert-rules/{rule}"
    changed = grafana.ask("read it", "GET", path) | {"isPaused": True}
    grafana.ask("change it", "PUT", path, changed, editable=True)
    with pytest.raises(PushRefusedError) as raised:
        push(settings)
    assert uid in str(raised.value)
    assert wanted.rule_groups[0]["title"] in str(raised.value)
    assert push(settings, hands="overwrite")[-1].startswith("Done: 2 updated")
    assert push(settings)[-1].endswith("nothing to do.")

    def fewer(made: Settings) -> Resources:
        made_of_it = resources(made)
        boards = {name: one for name, one in made_of_it.dashboards.items() if name != uid}
        return replace(made_of_it, dashboards=boards, rule_groups=made_of_it.rule_groups[1:])

    assert push(settings, prune=True, make=fewer)[-1].startswith("Done: 2 removed")
