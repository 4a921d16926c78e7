"""`dashboards push`, over HTTP to the stub of Grafana (tests/support/grafana_stub.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.grafana_push import SECRETS, TOKEN, dashboard, save_as_person
from tallystream_dashboards.grafana.push.job import PushSettings, run
from tallystream_dashboards.grafana.settings import FLAVOURS, Settings

if TYPE_CHECKING:
    from support.grafana_push import Pusher
    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.resources import Resources

RULES = "PUT /v1/provisioning/folder/tallystream-folder/rule-groups/lag"


def test_the_first_push_creates_everything(grafana: GrafanaStub, push: Pusher) -> None:
    """It creates folder, data source with its secret, contact point, dashboards, and rules that Grafana locks."""
    push()
    state = grafana.state
    assert state.folders["tallystream-folder"]["title"] == "Tallystream"
    assert state.secrets == {"tallystream-flux": {"token": SECRETS["INFLUXDB_TOKEN"]}}
    assert state.contacts["tallystream-contact"]["settings"] == {"url": SECRETS["TALLYSTREAM_ALERT_URL"]}
    assert state.contacts["tallystream-contact"]["provenance"] == ""
    assert {saved["meta"]["folderUid"] for saved in state.dashboards.values()} == {"tallystream-folder"}
    assert state.dashboards["tallystream-lag"]["dashboard"]["panels"] == dashboard("lag", "Worst")["panels"]
    assert {uid: (rule["ruleGroup"], rule["provenance"]) for uid, rule in state.rules.items()} == {
        "tallystream-rule-a": ("lag", "api"),
        "tallystream-rule-b": ("lag", "api"),
    }
    assert state.intervals == {("tallystream-folder", "lag"): 60}
    assert push.output.splitlines()[-1] == "Done: 6 created."
    assert "+ created   dashboard Overview [tallystream-overview]" in push.output


@pytest.mark.parametrize("versions_in_a_list", [True, False])
def test_a_second_push_writes_nothing(grafana: GrafanaStub, push: Pusher, versions_in_a_list: bool) -> None:
    """Fields that Grafana adds (defaults of queries, durations, versions) are no differences."""
    grafana.versions_in_a_list = versions_in_a_list
    push()
    assert push() == []
    assert push.output.splitlines()[-1] == "Done: 3 kept, 3 unchanged."


def test_a_push_writes_only_what_changed(grafana: GrafanaStub, push: Pusher) -> None:
    """A dashboard or a group of rules that is generated differently is updated; the rest is not written."""
    push()

    def change(generated: Resources) -> None:
        generated.dashboards["tallystream-lag"]["panels"][0]["title"] = "The worst"
        generated.rule_group["rules"][0]["for"] = "600s"

    assert push(change) == ["POST /dashboards/db", RULES]
    assert push(change) == []
    push(lambda generated: generated.rule_group["rules"].pop())
    assert list(grafana.state.rules) == ["tallystream-rule-a"]


def test_a_dry_run_writes_nothing(grafana: GrafanaStub, push: Pusher) -> None:
    """It lists what a push would do. Its exit code is 1 if the push would be refused."""
    assert push(dry_run=True) == []
    assert "+ created   rule group lag" in push.output
    assert push.code == 0
    push()
    save_as_person(grafana, "tallystream-lag", "My lag")
    assert push(dry_run=True) == []
    assert "! changed   dashboard Lag [tallystream-lag] (it was last saved by anna)" in push.output
    assert push.code == 1


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_generated_resources_can_be_pushed(grafana: GrafanaStub, flavour: str) -> None:
    """The stub knows every field of what the generator makes, and a second push writes nothing."""
    settings = PushSettings(url=grafana.url, generate=Settings(flavour=flavour))  # type: ignore[arg-type]
    assert run(settings, lambda _: None, env=SECRETS) == 0
    grafana.writes.clear()
    assert run(settings, lambda _: None, env=SECRETS) == 0
    assert grafana.writes == []


def test_a_failed_push_can_be_run_again(grafana: GrafanaStub, push: Pusher) -> None:
    """The output says what was done, and the error has no secret; the next push does the rest."""
    grafana.fail("POST /dashboards/db", 500, f"disk full, token {TOKEN}")
    error = push.failed()
    assert error.startswith("dashboard Overview [tallystream-overview]: ")
    assert "Grafana could not save a dashboard (500: disk full, token ***)" in error
    assert push.output.splitlines()[-1] == "+ created   contact point Tallystream [tallystream-contact]"
    assert grafana.state.rules == {}
    assert push()[0] == "POST /dashboards/db"
    assert push.output.splitlines()[-1] == "Done: 3 kept, 3 created."
    assert push() == []


def test_a_changed_dashboard_is_overwritten_only_with_force(grafana: GrafanaStub, push: Pusher) -> None:
    """The push is refused, with who saved it, and writes nothing, also not another resource."""
    push()
    save_as_person(grafana, "tallystream-lag", "My lag")

    def change(generated: Resources) -> None:
        generated.dashboards["tallystream-overview"]["title"] = "Overview of all"

    assert "dashboard Lag [tallystream-lag]: it was last saved by anna. --force overwrites" in push.refused(change)
    assert "POST /dashboards/db" in push(change, force=True)
    assert grafana.state.dashboards["tallystream-lag"]["dashboard"]["title"] == "Lag"
    assert push(change) == []


def test_a_moved_dashboard_is_moved_back_only_with_force(grafana: GrafanaStub, push: Pusher) -> None:
    """A move creates no version, but is a person's change too."""
    push()
    grafana.state.folders["elsewhere"] = {"uid": "elsewhere", "title": "Elsewhere", "version": 1}
    grafana.state.dashboards["tallystream-lag"]["meta"]["folderUid"] = "elsewhere"
    assert "it was moved to another folder" in push.refused()
    push(force=True)
    assert grafana.state.dashboards["tallystream-lag"]["meta"]["folderUid"] == "tallystream-folder"


def test_a_rule_of_a_person_is_deleted_only_with_force(grafana: GrafanaStub, push: Pusher) -> None:
    """Writing a group deletes the rules that are not in it, so the push is refused."""
    push()
    theirs = {"uid": "theirs", "title": "Theirs", "annotations": {}, "provenance": ""}
    grafana.state.rules["theirs"] = grafana.state.rules["tallystream-rule-a"] | theirs
    assert "rule group lag: no push wrote Theirs" in push.refused()
    push(force=True)
    assert "theirs" not in grafana.state.rules
    assert push() == []


def test_folder_data_source_and_contact_point_are_written_once(grafana: GrafanaStub, push: Pusher) -> None:
    """People may change them in Grafana. --force writes them again, with a secret that has changed."""
    push()
    state, env = grafana.state, SECRETS | {"INFLUXDB_TOKEN": "another-token"}
    state.folders["tallystream-folder"]["title"] = "Team A"
    state.contacts["tallystream-contact"]["settings"] = {"url": "https://chat.example.org/ours"}
    assert push(env=env) == []
    assert "= kept      contact point Tallystream [tallystream-contact]" in push.output
    assert push(env=env, force=True) == [
        "PUT /folders/tallystream-folder",
        "PUT /datasources/uid/tallystream-flux",
        "PUT /v1/provisioning/contact-points/tallystream-contact",
    ]
    assert state.contacts["tallystream-contact"]["settings"] == {"url": SECRETS["TALLYSTREAM_ALERT_URL"]}
    assert state.secrets["tallystream-flux"]["token"] == "another-token"


def test_an_existing_contact_point_with_the_name_is_used(grafana: GrafanaStub, push: Pusher) -> None:
    """Rules refer to their contact point by name, so no second one is created."""
    theirs = {"uid": "theirs", "name": "Tallystream", "type": "email", "settings": {}, "provenance": ""}
    grafana.state.contacts["theirs"] = theirs
    push()
    assert list(grafana.state.contacts) == ["theirs"]


def test_a_dashboard_that_is_saved_during_the_push_is_not_overwritten(
    grafana: GrafanaStub, push: Pusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request names the version that was read, so Grafana refuses it."""
    push()
    save = grafana.state.save_dashboard

    def save_after_a_person(body: dict[str, Any], by: str) -> Any:
        monkeypatch.setattr(grafana.state, "save_dashboard", save)
        save_as_person(grafana, "tallystream-lag", "Quicker")
        return save(body, by)

    monkeypatch.setattr(grafana.state, "save_dashboard", save_after_a_person)
    error = push.failed(lambda generated: generated.dashboards["tallystream-lag"].update(title="Slower"))
    assert "changed by someone else" in error
    assert grafana.state.dashboards["tallystream-lag"]["dashboard"]["title"] == "Quicker"
