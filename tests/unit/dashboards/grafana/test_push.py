"""`dashboards push`, over HTTP to the stub of Grafana (tests/support/grafana_stub.py)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.grafana_push import SECRETS, TOKEN, change_rule_as_person, dashboard
from tallystream_dashboards.grafana.push.job import PushSettings, run
from tallystream_dashboards.grafana.settings import FLAVOURS, Settings

if TYPE_CHECKING:
    from support.grafana_push import Pusher
    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.resources import Resources


def test_the_first_push_creates_everything(grafana: GrafanaStub, push: Pusher) -> None:
    """It creates folder, data source with its secret, contact point, dashboards and rules; people may edit them."""
    push()
    state = grafana.state
    assert state.folders["tallystream-folder"]["title"] == "Tallystream"
    assert state.secrets == {"tallystream-flux": {"token": SECRETS["INFLUXDB_TOKEN"]}}
    assert state.contacts["tallystream-contact"]["settings"] == {"url": SECRETS["TALLYSTREAM_ALERT_URL"]}
    assert state.contacts["tallystream-contact"]["provenance"] == ""
    assert {saved["meta"]["folderUid"] for saved in state.dashboards.values()} == {"tallystream-folder"}
    assert state.dashboards["tallystream-lag"]["dashboard"]["panels"] == dashboard("lag", "Worst")["panels"]
    assert {uid: (rule["ruleGroup"], rule["provenance"]) for uid, rule in state.rules.items()} == {
        "tallystream-rule-a": ("lag", ""),
        "tallystream-rule-b": ("lag", ""),
    }
    assert state.intervals == {("tallystream-folder", "lag"): 60}
    assert push.output.splitlines()[-1] == "Done: 6 created."
    assert "+ create    dashboard Overview [tallystream-overview]" in push.output


@pytest.mark.parametrize("versions_in_a_list", [True, False])
def test_a_second_push_writes_nothing(grafana: GrafanaStub, push: Pusher, versions_in_a_list: bool) -> None:
    """Fields that Grafana adds (defaults of queries, durations, versions) are no differences."""
    grafana.versions_in_a_list = versions_in_a_list
    push()
    assert push() == []
    assert push.output == "6 resources, nothing to do."
    assert push(prune=True) == []


def test_a_push_writes_only_what_changed(push: Pusher) -> None:
    """A dashboard, a rule or a data source that is generated differently is updated; the rest is not written."""
    push()

    def change(generated: Resources) -> None:
        generated.dashboards["tallystream-lag"]["panels"][0]["title"] = "The worst"
        generated.rule_groups[0]["rules"][0]["for"] = "600s"

    assert set(push(change)) == {
        "POST /dashboards/db",
        "PUT /v1/provisioning/folder/tallystream-folder/rule-groups/lag",
    }
    assert push.output.splitlines()[-1] == "Done: 2 updated, 4 unchanged."
    assert push(change) == []
    assert (
        push(change, generate=Settings(datasource_url="http://influxdb:8086"))
        == ["PUT /datasources/uid/tallystream-flux"] * 2
    )


def test_a_changed_secret_is_written(grafana: GrafanaStub, push: Pusher) -> None:
    """Grafana does not return secrets: a keyed digest shows that the secret changed."""
    push()
    fingerprint = grafana.state.datasources["tallystream-flux"]["jsonData"]["tallystreamPush"]
    assert re.fullmatch(r"1 tallystream-folder [0-9a-f]{16} [0-9a-f]{16} [0-9a-f]{16}", fingerprint)
    env = SECRETS | {"INFLUXDB_TOKEN": "another-token"}
    assert push(env=env) == ["PUT /datasources/uid/tallystream-flux"] * 2
    assert grafana.state.secrets["tallystream-flux"]["token"] == "another-token"
    assert push(env=env) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_generated_resources_can_be_pushed(grafana: GrafanaStub, flavour: str) -> None:
    """The stub knows every field of what the generator makes, and a second push writes nothing."""
    settings = PushSettings(url=grafana.url, generate=Settings(flavour=flavour))  # type: ignore[arg-type]
    assert run(settings, lambda _: None, env=SECRETS) == 0
    grafana.writes.clear()
    assert run(replace(settings, prune=True), lambda _: None, env=SECRETS) == 0
    assert grafana.writes == []


def test_a_failed_push_can_be_run_again(grafana: GrafanaStub, push: Pusher) -> None:
    """The error says what was done and what was not, without a secret; the next push does the rest."""
    grafana.fail("POST /dashboards/db", 500, f"disk full, token {TOKEN}")
    error = push.failed()
    assert "Grafana could not save a dashboard (500: disk full, token ***)" in error
    done, not_done = error.partition("Done: ")[2].split(" Not done: ")
    assert done == (
        "folder Tallystream [tallystream-folder], data source Tallystream Flux [tallystream-flux], "
        "contact point Tallystream [tallystream-contact]."
    )
    assert not_done.startswith(
        "dashboard Overview [tallystream-overview], dashboard Lag [tallystream-lag], rule group lag."
    )
    assert not_done.endswith("run the same command again: it does the rest.")
    assert grafana.state.rules == {}
    assert push()[0] == "POST /dashboards/db"
    assert push.output.splitlines()[-1] == "Done: 3 created, 3 unchanged."
    assert push() == []


@pytest.mark.parametrize(
    "write",
    ["PUT /datasources/uid/tallystream-flux", "PUT /v1/provisioning/folder/tallystream-folder/rule-groups/lag"],
)
def test_a_failure_between_the_two_writes_of_a_resource_is_no_manual_change(
    grafana: GrafanaStub, push: Pusher, write: str
) -> None:
    """If the second write (the digest of what Grafana stored) fails, the next push is not refused."""
    grafana.fail(write, 500, "unavailable")
    push.failed()
    assert push() != []
    assert push() == []


def test_provisioned_resources_block_a_push(grafana: GrafanaStub, push: Pusher) -> None:
    """Nobody can write what is provisioned from a file, so the error does not suggest --overwrite."""
    push()
    grafana.state.dashboards["tallystream-lag"]["meta"]["provisioned"] = True
    grafana.state.datasources["tallystream-flux"]["readOnly"] = True
    change_rule_as_person(grafana, "tallystream-rule-a", provenance="file")
    error = push.refused(on_manual_change="overwrite")
    assert error.count("it is provisioned from a file or by another program") == 3
    assert "--overwrite" not in error


def test_another_data_source_with_the_name_blocks_a_push(grafana: GrafanaStub, push: Pusher) -> None:
    """Names of data sources are unique: the push is refused before it writes anything."""
    push(generate=Settings(uid_prefix="other"))
    assert "a data source with this name exists (uid other-flux): give another --datasource-name" in push.refused()
