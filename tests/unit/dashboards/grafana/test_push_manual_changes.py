"""`dashboards push` after a person changed something in Grafana; on the stub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.grafana_push import SECRETS, change_rule_as_person, dashboard, save_as_person

if TYPE_CHECKING:
    from support.grafana_push import Pusher
    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.resources import Resources


def test_a_changed_dashboard_is_not_overwritten(grafana: GrafanaStub, push: Pusher) -> None:
    """The push is refused, with who saved it; --keep-changed pushes the rest, --overwrite all of it."""
    push()
    save_as_person(grafana, "tallystream-lag", "My lag")

    def change(generated: Resources) -> None:
        generated.dashboards["tallystream-overview"]["title"] = "Overview of all"

    error = push.refused(change)
    assert "dashboard Lag [tallystream-lag]: it differs from what a push wrote: it was last saved by anna" in error
    assert "--overwrite" in error
    assert push(change, on_manual_change="keep") == ["POST /dashboards/db"]
    assert grafana.state.dashboards["tallystream-lag"]["dashboard"]["title"] == "My lag"
    assert push(change, on_manual_change="overwrite") == ["POST /dashboards/db"]
    assert grafana.state.dashboards["tallystream-lag"]["dashboard"]["title"] == "Lag"
    assert push(change) == []


def test_a_version_that_repeats_the_message_of_a_push_is_a_persons(grafana: GrafanaStub, push: Pusher) -> None:
    """No push writes the same message twice, so the push is refused."""
    push()
    message = grafana.state.versions["tallystream-lag"][0]["message"]
    save_as_person(grafana, "tallystream-lag", "My lag")
    grafana.state.versions["tallystream-lag"][0]["message"] = message
    assert "dashboard Lag" in push.refused()


def test_a_moved_dashboard_is_not_moved_back(grafana: GrafanaStub, push: Pusher) -> None:
    """A move creates no version, but is a person's change too."""
    push()
    grafana.state.folders["elsewhere"] = {"uid": "elsewhere", "title": "Elsewhere", "version": 1}
    grafana.state.dashboards["tallystream-lag"]["meta"]["folderUid"] = "elsewhere"
    assert "it was moved to another folder" in push.refused()
    push(on_manual_change="overwrite")
    assert grafana.state.dashboards["tallystream-lag"]["meta"]["folderUid"] == "tallystream-folder"


@pytest.mark.parametrize(
    ("field", "value"), [("title", "Mine"), ("isPaused", True), ("labels", {"severity": "none"}), ("for", "1h")]
)
def test_a_changed_rule_is_not_overwritten(grafana: GrafanaStub, push: Pusher, field: str, value: object) -> None:
    """A change of any field, also a pause, refuses the push; --overwrite restores the generated rule."""
    push()
    change_rule_as_person(grafana, "tallystream-rule-b", **{field: value})
    assert "rule group lag: it was changed since the last push" in push.refused()
    push(on_manual_change="overwrite")
    assert grafana.state.rules["tallystream-rule-b"][field] != value
    assert push() == []


def test_a_rule_that_a_person_added_to_the_group_is_not_deleted(grafana: GrafanaStub, push: Pusher) -> None:
    """Writing a group deletes the rules that are not in it, so the push is refused."""
    push()
    grafana.state.rules["theirs"] = grafana.state.rules["tallystream-rule-a"] | {"uid": "theirs", "annotations": {}}
    assert "rule group lag" in push.refused()
    assert "theirs" in grafana.state.rules


def test_a_moved_rule_is_not_moved_back(grafana: GrafanaStub, push: Pusher) -> None:
    """Its uid identifies it in another group, which the error names."""
    push()
    change_rule_as_person(grafana, "tallystream-rule-b", ruleGroup="mine")
    grafana.state.intervals["tallystream-folder", "mine"] = 60
    assert "the rule tallystream-rule-b is in the group mine" in push.refused()


def test_a_changed_data_source_is_not_overwritten(grafana: GrafanaStub, push: Pusher) -> None:
    """Another URL refuses the push; --overwrite restores it."""
    push()
    source = grafana.state.datasources["tallystream-flux"]
    source["url"] = "http://elsewhere:8086"
    assert "data source Tallystream Flux [tallystream-flux]: it was changed since the last push" in push.refused()
    push(on_manual_change="overwrite")
    assert push() == []


def test_folder_title_and_contact_settings_may_be_changed(grafana: GrafanaStub, push: Pusher) -> None:
    """They are kept and do not refuse a push; only --overwrite writes them. The contact's address is not shown."""
    push()
    grafana.state.folders["tallystream-folder"]["title"] = "Team A"
    grafana.state.contacts["tallystream-contact"]["settings"] = {"url": "https://chat.example.org/ours"}
    assert push() == []
    assert (
        "= kept      contact point Tallystream [tallystream-contact] (its settings may be changed in Grafana)"
        in push.output
    )
    assert "chat.example.org" not in push.output
    assert push(on_manual_change="overwrite") == [
        "PUT /folders/tallystream-folder",
        "PUT /v1/provisioning/contact-points/tallystream-contact",
    ]
    assert grafana.state.contacts["tallystream-contact"]["settings"] == {"url": SECRETS["TALLYSTREAM_ALERT_URL"]}


def test_an_existing_contact_point_with_the_name_is_used(grafana: GrafanaStub, push: Pusher) -> None:
    """Rules refer to their contact point by name, so no second one is created."""
    theirs = {"uid": "theirs", "name": "Tallystream", "type": "email", "settings": {}, "provenance": ""}
    grafana.state.contacts["theirs"] = theirs
    push()
    assert list(grafana.state.contacts) == ["theirs"]


def test_an_imported_dashboard_without_differences_is_adopted(grafana: GrafanaStub, push: Pusher) -> None:
    """A generated file that a person imported into the folder belongs to the push from then on."""
    grafana.state.create_folder({"uid": "tallystream-folder", "title": "Tallystream"})
    model = dashboard("lag", "Worst")
    grafana.state.save_dashboard({"dashboard": model, "folderUid": "tallystream-folder", "message": ""}, "anna")
    push()
    assert (
        "~ update    dashboard Lag [tallystream-lag] (it has no differences, and belongs to this command from now on)"
        in push.output
    )
    assert push() == []


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
