"""`dashboards push` where a person was at work: nothing of theirs is overwritten unless told; on the stub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.grafana_made import SECRETS, dashboard, made
from support.grafana_pushing import by_hand, rule_by_hand

if TYPE_CHECKING:
    from support.grafana_pushing import Pusher
    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.resources import Resources


def test_a_dashboard_that_a_person_changed_is_not_overwritten(grafana: GrafanaStub, push: Pusher) -> None:
    """The whole push is refused, with who saved it; --keep-changed pushes the rest, --overwrite all of it."""
    push()
    by_hand(grafana, "tallystream-lag", "My lag")

    def change(one: Resources) -> None:
        one.dashboards["tallystream-overview"]["title"] = "Overview of all"

    said = push.refused(made(change))
    assert "dashboard Lag [tallystream-lag]: it is not as a push left it: it was last saved by anna" in said
    assert "--overwrite" in said
    assert push(made(change), on_manual_change="keep") == ["POST /dashboards/db"]
    assert grafana.store.dashboards["tallystream-lag"]["dashboard"]["title"] == "My lag"
    assert push(made(change), on_manual_change="overwrite") == ["POST /dashboards/db"]
    assert grafana.store.dashboards["tallystream-lag"]["dashboard"]["title"] == "Lag"
    assert push(made(change)) == []


def test_a_save_that_repeats_the_last_message_is_a_persons(grafana: GrafanaStub, push: Pusher) -> None:
    """A version with the message of the one before it is nobody's push, whatever it says."""
    push()
    message = grafana.store.versions["tallystream-lag"][0]["message"]
    by_hand(grafana, "tallystream-lag", "My lag")
    grafana.store.versions["tallystream-lag"][0]["message"] = message
    assert "dashboard Lag" in push.refused()


def test_a_dashboard_that_was_moved_is_not_moved_back(grafana: GrafanaStub, push: Pusher) -> None:
    """A move makes no version; it is a person's change all the same."""
    push()
    grafana.store.folders["elsewhere"] = {"uid": "elsewhere", "title": "Elsewhere", "version": 1}
    grafana.store.dashboards["tallystream-lag"]["meta"]["folderUid"] = "elsewhere"
    assert "it was moved to another folder" in push.refused()
    push(on_manual_change="overwrite")
    assert grafana.store.dashboards["tallystream-lag"]["meta"]["folderUid"] == "tallystream-folder"


@pytest.mark.parametrize(
    ("field", "value"), [("title", "Mine"), ("isPaused", True), ("labels", {"severity": "none"}), ("for", "1h")]
)
def test_a_rule_that_a_person_changed_is_not_overwritten(
    grafana: GrafanaStub, push: Pusher, field: str, value: object
) -> None:
    """Any field counts, a pause too; with --overwrite the rule is as it is generated."""
    push()
    rule_by_hand(grafana, "tallystream-rule-b", **{field: value})
    assert "rule group lag: it was changed since the last push" in push.refused()
    push(on_manual_change="overwrite")
    assert grafana.store.rules["tallystream-rule-b"][field] != value
    assert push() == []


def test_a_rule_that_a_person_added_to_the_group_is_not_deleted(grafana: GrafanaStub, push: Pusher) -> None:
    """Writing a group deletes what is not in it: so it is refused while a stranger is in it."""
    push()
    grafana.store.rules["theirs"] = grafana.store.rules["tallystream-rule-a"] | {"uid": "theirs", "annotations": {}}
    assert "rule group lag" in push.refused()
    assert "theirs" in grafana.store.rules


def test_a_rule_that_was_moved_is_not_moved_back(grafana: GrafanaStub, push: Pusher) -> None:
    """A rule of ours in another group is told by its uid."""
    push()
    rule_by_hand(grafana, "tallystream-rule-b", ruleGroup="mine")
    grafana.store.intervals["tallystream-folder", "mine"] = 60
    assert "the rule tallystream-rule-b is in the group mine" in push.refused()


def test_a_data_source_that_a_person_changed_is_not_overwritten(grafana: GrafanaStub, push: Pusher) -> None:
    """Who points it elsewhere means it."""
    push()
    source = grafana.store.datasources["tallystream-flux"]
    source["url"] = "http://elsewhere:8086"
    assert "data source Tallystream Flux [tallystream-flux]: it was changed since the last push" in push.refused()
    push(on_manual_change="overwrite")
    assert push() == []


def test_title_and_contact_are_a_persons_to_choose(grafana: GrafanaStub, push: Pusher) -> None:
    """Who renames the folder or says whom to tell is not asked for --overwrite at each push."""
    push()
    grafana.store.folders["tallystream-folder"]["title"] = "Team A"
    grafana.store.contacts["tallystream-contact"]["settings"] = {"url": "https://chat.example.org/ours"}
    assert push() == []
    assert (
        "= kept      contact point Tallystream [tallystream-contact] (only you can choose who is notified)" in push.said
    )
    assert "chat.example.org" not in push.said
    assert push(on_manual_change="overwrite") == [
        "PUT /folders/tallystream-folder",
        "PUT /v1/provisioning/contact-points/tallystream-contact",
    ]
    assert grafana.store.contacts["tallystream-contact"]["settings"] == {"url": SECRETS["TALLYSTREAM_ALERT_URL"]}


def test_another_contact_point_of_the_name_serves(grafana: GrafanaStub, push: Pusher) -> None:
    """Rules name their contact point: one that a person made under this name is told, and no second one is added."""
    theirs = {"uid": "theirs", "name": "Tallystream", "type": "email", "settings": {}, "provenance": ""}
    grafana.store.contacts["theirs"] = theirs
    push()
    assert list(grafana.store.contacts) == ["theirs"]


def test_what_was_imported_by_hand_is_taken_over_where_nothing_differs(grafana: GrafanaStub, push: Pusher) -> None:
    """Generated files that a person imported into the folder become the command's, without --overwrite."""
    grafana.store.create_folder({"uid": "tallystream-folder", "title": "Tallystream"})
    model = dashboard("lag", "Worst")
    grafana.store.save_dashboard({"dashboard": model, "folderUid": "tallystream-folder", "message": ""}, "anna")
    push()
    assert (
        "~ update    dashboard Lag [tallystream-lag] (nothing differs, and it is this command's from now on)"
        in push.said
    )
    assert push() == []


def test_somebody_saves_while_it_is_pushed(grafana: GrafanaStub, push: Pusher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that was not there when the plan was made is not overwritten: Grafana is told which one was read."""
    push()
    save = grafana.store.save_dashboard

    def first(body: dict[str, Any], by: str) -> Any:
        monkeypatch.setattr(grafana.store, "save_dashboard", save)
        by_hand(grafana, "tallystream-lag", "Quicker")
        return save(body, by)

    monkeypatch.setattr(grafana.store, "save_dashboard", first)
    said = push.failed(make=made(lambda one: one.dashboards["tallystream-lag"].update(title="Slower")))
    assert "changed by someone else" in said
    assert grafana.store.dashboards["tallystream-lag"]["dashboard"]["title"] == "Quicker"
