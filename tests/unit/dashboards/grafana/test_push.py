"""`dashboards push` against the strict stub of Grafana (tests/support/grafana_stub.py), over real HTTP."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.grafana_made import SECRETS, TOKEN, dashboard, made, rule
from support.grafana_stub import GrafanaStub
from tallystream.dashboards.grafana.push import PushSettings, run
from tallystream.dashboards.grafana.push_model import PushFailedError, PushRefusedError
from tallystream.dashboards.grafana.settings import Settings
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tallystream.dashboards.grafana.resources import Resources

OTHERS = {"uid": "theirs", "title": "Theirs", "panels": []}


@pytest.fixture
def grafana() -> Iterator[GrafanaStub]:
    """A Grafana that has nothing of ours; whatever it would not understand fails the test."""
    with GrafanaStub(TOKEN) as stub:
        yield stub
    assert stub.problems == []


class Pusher:
    """Pushes, and keeps what was said; `pushed` returns the writes that it took."""

    def __init__(self, grafana: GrafanaStub) -> None:
        self.grafana, self.said, self.code = grafana, "", 0

    def __call__(self, make: Callable[[Settings], Resources] | None = None, **options: Any) -> list[str]:
        """Push, and return what was written; no secret is in what was said."""
        self.grafana.writes.clear()
        lines: list[str] = []
        env = options.pop("env", SECRETS)
        settings = PushSettings(url=self.grafana.url, **options)
        try:
            self.code = run(settings, lines.append, env=env, make=make or made())
        finally:
            self.said = "\n".join(lines)
            assert not any(secret in self.said for secret in SECRETS.values())
        return list(self.grafana.writes)

    def refused(self, make: Callable[[Settings], Resources] | None = None, **options: Any) -> str:
        """Push what is refused, and return why; nothing was written."""
        with pytest.raises(PushRefusedError) as raised:
            self(make, **options)
        assert self.grafana.writes == []
        return str(raised.value)

    def failed(self, **options: Any) -> str:
        """Push what fails in the midst, and return what is said then."""
        with pytest.raises(PushFailedError) as raised:
            self(**options)
        return str(raised.value)


@pytest.fixture
def push(grafana: GrafanaStub) -> Pusher:
    """What pushes to the stub."""
    return Pusher(grafana)


def by_hand(grafana: GrafanaStub, uid: str, title: str) -> None:
    """Save a dashboard with another title, as a person does on the page."""
    was = grafana.store.dashboards[uid]
    body = {"dashboard": was["dashboard"] | {"title": title}, "folderUid": was["meta"]["folderUid"], "message": ""}
    assert grafana.store.save_dashboard(body, "anna")[0] == 200


def rule_by_hand(grafana: GrafanaStub, uid: str, **fields: Any) -> None:
    """Change a rule as a person does on the page."""
    grafana.store.rules[uid] |= fields


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


def test_a_dashboard_that_a_person_changed_is_not_overwritten(grafana: GrafanaStub, push: Pusher) -> None:
    """The whole push is refused, with who saved it; --keep-changed pushes the rest, --overwrite all of it."""
    push()
    by_hand(grafana, "tallystream-lag", "My lag")

    def change(one: Resources) -> None:
        one.dashboards["tallystream-overview"]["title"] = "Overview of all"

    said = push.refused(made(change))
    assert "dashboard Lag [tallystream-lag]: it is not as a push left it: it was last saved by anna" in said
    assert "--overwrite" in said
    assert push(made(change), hands="keep") == ["POST /dashboards/db"]
    assert grafana.store.dashboards["tallystream-lag"]["dashboard"]["title"] == "My lag"
    assert push(made(change), hands="overwrite") == ["POST /dashboards/db"]
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
    push(hands="overwrite")
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
    push(hands="overwrite")
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
    push(hands="overwrite")
    assert push() == []


def test_another_secret_is_written(grafana: GrafanaStub, push: Pusher) -> None:
    """A secret cannot be read back: a sealed digest tells that it is another one, and gives nothing away."""
    push()
    sealed = grafana.store.datasources["tallystream-flux"]["jsonData"]["tallystreamPush"]
    assert re.fullmatch(r"1 tallystream-folder [0-9a-f]{16} [0-9a-f]{16} [0-9a-f]{16}", sealed)
    env = SECRETS | {"INFLUXDB_TOKEN": "another-token"}
    assert push(env=env) == ["PUT /datasources/uid/tallystream-flux"] * 2
    assert grafana.store.secrets["tallystream-flux"]["token"] == "another-token"
    assert push(env=env) == []


def test_title_and_contact_are_a_persons_to_choose(grafana: GrafanaStub, push: Pusher) -> None:
    """Who renames the folder or says whom to tell is not asked for --overwrite at each push."""
    push()
    grafana.store.folders["tallystream-folder"]["title"] = "Team A"
    grafana.store.contacts["tallystream-contact"]["settings"] = {"url": "https://chat.example.org/ours"}
    assert push() == []
    assert (
        "= kept      contact point Tallystream [tallystream-contact] (whom to tell is a person's to choose)"
        in push.said
    )
    assert "chat.example.org" not in push.said
    assert push(hands="overwrite") == [
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


def test_prune_removes_what_is_ours_and_no_longer_generated(grafana: GrafanaStub, push: Pusher) -> None:
    """Dashboards, rule groups and data sources of an earlier push; without --prune they stay."""

    def more(one: Resources) -> None:
        one.dashboards["tallystream-old"] = dashboard("old")
        old = {"title": "old / rules", "folderUid": "tallystream-folder", "interval": 60, "rules": [rule("old")]}
        one.rule_groups.append(old)
        one.datasources.append(one.datasources[0] | {"uid": "tallystream-other", "name": "Other"})

    push(made(more))
    grafana.store.save_dashboard({"dashboard": OTHERS, "folderUid": "tallystream-folder"}, "anna")
    grafana.store.datasources["theirs"] = grafana.store.datasources["tallystream-flux"] | {
        "uid": "theirs",
        "name": "Theirs",
        "jsonData": {},
    }
    assert push() == []
    assert push(prune=True) == [
        "DELETE /v1/provisioning/alert-rules/tallystream-rule-old",
        "DELETE /dashboards/uid/tallystream-old",
        "DELETE /datasources/uid/tallystream-other",
    ]
    assert set(grafana.store.dashboards) == {"tallystream-overview", "tallystream-lag", "theirs"}
    assert set(grafana.store.datasources) == {"tallystream-flux", "theirs"}
    assert push.said.splitlines()[-1] == "Done: 3 removed, 6 unchanged."


def test_prune_asks_before_it_removes_what_a_person_changed(grafana: GrafanaStub, push: Pusher) -> None:
    """What was changed by hand is somebody's work, generated or not."""
    push(made(lambda one: one.dashboards.update({"tallystream-old": dashboard("old")})))
    by_hand(grafana, "tallystream-old", "My own")
    assert "dashboard My own [tallystream-old]" in push.refused(prune=True)
    assert push(prune=True, hands="keep") == []
    assert push(prune=True, hands="overwrite") == ["DELETE /dashboards/uid/tallystream-old"]


def test_prune_leaves_another_system_alone(grafana: GrafanaStub, push: Pusher) -> None:
    """A uid prefix that begins like ours is another's: its folder and its marks tell."""
    settings = Settings(uid_prefix="tallystream-b", folder_title="B", datasource_name="B")
    name = "tallystream-b-lag"

    def other(one: Resources) -> None:
        one.dashboards.clear()
        one.rule_groups.clear()
        one.dashboards[name] = dashboard("b-lag")

    push(made(other), made=settings)
    push()
    assert push(prune=True) == []
    assert name in grafana.store.dashboards


def test_a_dry_run_tells_the_difference_and_writes_nothing(grafana: GrafanaStub, push: Pusher) -> None:
    """A line for each resource, with its differences; the exit code says whether a push would go through."""
    push(made(lambda one: one.dashboards.update({"tallystream-old": dashboard("old")})))

    def change(one: Resources) -> None:
        one.dashboards["tallystream-new"] = dashboard("new")
        lag = one.dashboards["tallystream-lag"]
        lag["panels"][0]["type"] = "stat"
        lag["time"]["from"] = "now-6h"
        model = one.rule_groups[0]["rules"][1]["data"][0]["model"]
        model["query"] = model["query"].replace("9", "10")

    assert push(made(change), dry_run=True, prune=True) == []
    assert push.code == 0
    assert push.said.splitlines() == [
        "= unchanged folder Tallystream [tallystream-folder]",
        "= unchanged data source Tallystream Flux [tallystream-flux]",
        "= unchanged contact point Tallystream [tallystream-contact]",
        "= unchanged dashboard Overview [tallystream-overview]",
        "~ update    dashboard Lag [tallystream-lag]",
        '      ~ panels[Worst].type: "timeseries" → "stat"',
        '      ~ time.from: "now-1h" → "now-6h"',
        "+ create    dashboard New [tallystream-new]",
        "~ update    rule group lag",
        '      ~ rules[Lag of b].data[A].model.query: "… r._value > 9)" → "… r._value > 10)"',
        "- remove    dashboard Old [tallystream-old] (it is no longer wanted)",
        "Nothing was written. A push would leave 1 created, 2 updated, 1 removed, 4 unchanged.",
    ]
    by_hand(grafana, "tallystream-lag", "My lag")
    assert push(made(change), dry_run=True) == []
    assert push.code == 1
    assert '      ~ title: "My lag" → "Lag"' in push.said.splitlines()


def test_a_failure_in_the_midst_says_what_was_done(grafana: GrafanaStub, push: Pusher) -> None:
    """Nothing after it is written; the same command run again goes on, and then there is nothing to do."""
    grafana.fail("POST /dashboards/db", 500, f"disk full, token {TOKEN}")
    said = push.failed()
    assert "Grafana could not save a dashboard: Server Error 500: disk full, token ***" in said
    done, left = said.partition("Done: ")[2].split(" Not done: ")
    assert done == (
        "folder Tallystream [tallystream-folder], data source Tallystream Flux [tallystream-flux], "
        "contact point Tallystream [tallystream-contact]."
    )
    assert left.startswith(
        "dashboard Overview [tallystream-overview], dashboard Lag [tallystream-lag], rule group lag."
    )
    assert left.endswith("it goes on from here.")
    assert grafana.store.rules == {}
    assert push()[0] == "POST /dashboards/db"
    assert push.said.splitlines()[-1] == "Done: 3 created, 3 unchanged."
    assert push() == []


@pytest.mark.parametrize(
    "request_",
    ["PUT /datasources/uid/tallystream-flux", "PUT /v1/provisioning/folder/tallystream-folder/rule-groups/lag"],
)
def test_between_the_two_writes_of_one_resource(grafana: GrafanaStub, push: Pusher, request_: str) -> None:
    """What Grafana made of it is written down in a second step: where that fails nobody is taken for a person."""
    grafana.fail(request_, 500, "away")
    push.failed()
    assert push() != []
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


def test_what_is_provisioned_stands_in_the_way(grafana: GrafanaStub, push: Pusher) -> None:
    """Grafana lets nobody write what comes from a file; --overwrite does not help, and is not offered."""
    push()
    grafana.store.dashboards["tallystream-lag"]["meta"]["provisioned"] = True
    grafana.store.datasources["tallystream-flux"]["readOnly"] = True
    rule_by_hand(grafana, "tallystream-rule-a", provenance="file")
    said = push.refused(hands="overwrite")
    assert said.count("it is provisioned from a file or by another program") == 3
    assert "--overwrite" not in said


def test_a_data_source_of_the_name_stands_in_the_way(grafana: GrafanaStub, push: Pusher) -> None:
    """Names of data sources are unique: known before anything is written."""
    push(made=Settings(uid_prefix="other"))
    assert (
        "a data source of this name is there, with the uid other-flux: give another --datasource-name" in push.refused()
    )


def test_permissions_are_looked_at_before_anything_is_written(grafana: GrafanaStub, push: Pusher) -> None:
    """Each that is missing is named; a Grafana that does not tell is tried."""
    allowed = grafana.allowed
    grafana.allowed = ("folders:create", "dashboards:create")
    with pytest.raises(ConfigError, match=r"GRAFANA_TOKEN: .*lacks alert.provisioning:write, datasources:create, data"):
        push()
    assert grafana.writes == []
    grafana.allowed = None
    assert push() != []
    grafana.allowed = allowed
    assert push() == []


def test_the_token_may_come_from_a_file(grafana: GrafanaStub, push: Pusher, tmp_path: Path) -> None:
    """GRAFANA_TOKEN_FILE, as secrets are mounted into containers; a newline at its end is no part of it."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    env = {**SECRETS, "GRAFANA_TOKEN": "", "GRAFANA_TOKEN_FILE": str(file)}
    assert push(env=env) != []


def test_no_secret_is_logged(push: Pusher, caplog: pytest.LogCaptureFixture) -> None:
    """Not at the level debug either, by nothing that is called on the way."""
    caplog.set_level(logging.DEBUG)
    push()
    assert caplog.text != ""
    assert not any(secret in caplog.text for secret in SECRETS.values())


def test_served_below_a_path(tmp_path: Path) -> None:
    """A Grafana behind a proxy at /grafana, with and without a slash at the end."""
    with GrafanaStub(TOKEN, below="/grafana") as stub:
        for url in (stub.url, f"{stub.url}/"):
            assert run(PushSettings(url=url), lambda _: None, env=SECRETS, make=made()) == 0
        assert stub.problems == []


def test_every_flavour_that_is_generated_can_be_pushed(grafana: GrafanaStub) -> None:
    """What the generator really makes, pushed twice: the stub knows every field of it, and the second push is quiet."""
    for flavour in ("flux", "influxql", "prometheus"):
        made_by = Settings(flavour=flavour, uid_prefix=flavour, folder_title=flavour)
        settings = PushSettings(url=grafana.url, made=made_by)
        assert run(settings, lambda _: None, env=SECRETS) == 0
        grafana.writes.clear()
        assert run(replace(settings, prune=True), lambda _: None, env=SECRETS) == 0
        assert grafana.writes == []
