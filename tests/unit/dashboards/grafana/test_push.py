"""`dashboards push` against the strict stub of Grafana (tests/support/grafana_stub.py), over real HTTP."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.grafana_made import SECRETS, dashboard, made
from tallystream_dashboards.grafana.push.job import PushSettings, run
from tallystream_dashboards.grafana.settings import Settings

if TYPE_CHECKING:
    from support.grafana_pushing import Pusher
    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.resources import Resources


def test_the_first_push_creates_everything(grafana: GrafanaStub, push: Pusher) -> None:
    """Folder, data source with its secret, contact point, dashboards and rules, all of them open to people's edits."""
    push()
    store = grafana.store
    assert store.folders["tallystream-folder"]["title"] == "Tallystream"
    assert store.secrets == {"tallystream-flux": {"token": SECRETS["INFLUXDB_TOKEN"]}}
    assert store.contacts["tallystream-contact"]["settings"] == {"url": SECRETS["TALLYSTREAM_ALERT_URL"]}
    assert store.contacts["tallystream-contact"]["provenance"] == ""
    assert {one["meta"]["folderUid"] for one in store.dashboards.values()} == {"tallystream-folder"}
    assert store.dashboards["tallystream-lag"]["dashboard"]["panels"] == dashboard("lag", "Worst")["panels"]
    assert {uid: (one["ruleGroup"], one["provenance"]) for uid, one in store.rules.items()} == {
        "tallystream-rule-a": ("lag", ""),
        "tallystream-rule-b": ("lag", ""),
    }
    assert store.intervals == {("tallystream-folder", "lag"): 60}
    assert push.said.splitlines()[-1] == "Done: 6 created."
    assert "+ create    dashboard Overview [tallystream-overview]" in push.said


@pytest.mark.parametrize("versions_in_a_list", [True, False])
def test_a_second_push_writes_nothing(grafana: GrafanaStub, push: Pusher, versions_in_a_list: bool) -> None:
    """What Grafana fills in of its own (defaults in queries, durations, versions) is no difference."""
    grafana.versions_in_a_list = versions_in_a_list
    push()
    assert push() == []
    assert push.said == "6 resources, nothing to do."
    assert push(prune=True) == []


def test_what_is_generated_anew_is_written_and_nothing_else(push: Pusher) -> None:
    """A dashboard, a rule and a data source that differ are updated; each is one that a person has not touched."""
    push()

    def change(one: Resources) -> None:
        one.dashboards["tallystream-lag"]["panels"][0]["title"] = "The worst"
        one.rule_groups[0]["rules"][0]["for"] = "600s"

    assert set(push(made(change))) == {
        "POST /dashboards/db",
        "PUT /v1/provisioning/folder/tallystream-folder/rule-groups/lag",
    }
    assert push.said.splitlines()[-1] == "Done: 2 updated, 4 unchanged."
    assert push(made(change)) == []
    assert (
        push(made(change), made=Settings(datasource_url="http://influxdb:8086"))
        == ["PUT /datasources/uid/tallystream-flux"] * 2
    )


def test_another_secret_is_written(grafana: GrafanaStub, push: Pusher) -> None:
    """A secret cannot be read back: a sealed digest tells that it is another one, and gives nothing away."""
    push()
    sealed = grafana.store.datasources["tallystream-flux"]["jsonData"]["tallystreamPush"]
    assert re.fullmatch(r"1 tallystream-folder [0-9a-f]{16} [0-9a-f]{16} [0-9a-f]{16}", sealed)
    env = SECRETS | {"INFLUXDB_TOKEN": "another-token"}
    assert push(env=env) == ["PUT /datasources/uid/tallystream-flux"] * 2
    assert grafana.store.secrets["tallystream-flux"]["token"] == "another-token"
    assert push(env=env) == []


def test_every_flavour_that_is_generated_can_be_pushed(grafana: GrafanaStub) -> None:
    """What the generator really makes, pushed twice: the stub knows every field of it, and the second push is quiet."""
    for flavour in ("flux", "influxql", "prometheus"):
        made_by = Settings(flavour=flavour, uid_prefix=flavour, folder_title=flavour)
        settings = PushSettings(url=grafana.url, made=made_by)
        assert run(settings, lambda _: None, env=SECRETS) == 0
        grafana.writes.clear()
        assert run(replace(settings, prune=True), lambda _: None, env=SECRETS) == 0
        assert grafana.writes == []
