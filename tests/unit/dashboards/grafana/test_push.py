"""`dashboards push` to a stub of Grafana: what it writes, and its access."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import alerting
from typer.testing import CliRunner

from support.certificates import self_signed
from support.grafana_stub import ENV, TOKEN, GrafanaStub
from tallystream.errors import ConfigError
from tallystream_cli import main
from tallystream_cli.servers.process import free_port
from tallystream_dashboards.grafana.client import Grafana
from tallystream_dashboards.grafana.generate import dashboards, rule_group
from tallystream_dashboards.grafana.push import PushFailedError, PushRefusedError, run
from tallystream_dashboards.grafana.settings import FLAVOURS, Flavour, Settings, Thresholds

SAVE, RULES = "POST /dashboards/db", "PUT /v1/provisioning/folder/tallystream-folder/rule-groups/tallystream"
LAG = "dashboard Tallystream Lag [tallystream-lag]"
CHANGED = Settings(bucket="other", thresholds=Thresholds(lag_seconds=60))
"""With these settings all dashboards and the rules are generated differently."""


class Pusher:
    """Pushes to the stub, and keeps the output and the exit code of the last push."""

    def __init__(self, grafana: GrafanaStub) -> None:
        self.grafana, self.output, self.code = grafana, "", 0

    def __call__(
        self, generate: Settings | None = None, *, env: dict[str, str] | None = None, **options: Any
    ) -> list[str]:
        """Push what is generated, and return the writes; the token is not in the output."""
        self.grafana.writes.clear()
        lines: list[str] = []
        try:
            grafana = Grafana(self.grafana.url, env or ENV)
            self.code = run(grafana, generate or Settings(), lines.append, **options)
        finally:
            self.output = "\n".join(lines)
            assert TOKEN not in self.output
        return list(self.grafana.writes)

    def refused(self, generate: Settings | None = None) -> str:
        """Push, and return why it was refused; nothing was written."""
        with pytest.raises(PushRefusedError) as raised:
            self(generate)
        assert self.grafana.writes == []
        return str(raised.value)

    def failed(self, generate: Settings | None = None) -> str:
        """Push, and return the message of its failure."""
        with pytest.raises(PushFailedError) as raised:
            self(generate)
        return str(raised.value)


@pytest.fixture
def grafana() -> Iterator[GrafanaStub]:
    """An empty stub of Grafana. A request that Grafana would not understand fails the test."""
    with GrafanaStub() as stub:
        yield stub
    assert stub.problems == []


@pytest.fixture
def push(grafana: GrafanaStub) -> Pusher:
    """A pusher to the stub."""
    return Pusher(grafana)


def save_as_person(grafana: GrafanaStub, uid: str, title: str) -> None:
    """Save a dashboard with another title, as a person does in Grafana."""
    saved = grafana.state.dashboards[uid]
    body = {"dashboard": saved["dashboard"] | {"title": title}, "folderUid": saved["meta"]["folderUid"], "message": ""}
    assert grafana.state.save_dashboard(body, "anna")[0] == 200


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_first_push_creates_everything(grafana: GrafanaStub, push: Pusher, flavour: Flavour) -> None:
    """It creates the folder, the dashboards, and rules with links to their panels, which Grafana locks."""
    settings = Settings(flavour=flavour)
    push(settings)
    state = grafana.state
    assert state.folders["tallystream-folder"]["title"] == "Tallystream"
    assert {saved["meta"]["folderUid"] for saved in state.dashboards.values()} == {"tallystream-folder"}
    expected = dashboards(settings)
    assert {uid: saved["dashboard"]["panels"] for uid, saved in state.dashboards.items()} == {
        uid: model["panels"] for uid, model in expected.items()
    }
    rules = rule_group(settings)["rules"]
    assert list(state.rules) == [rule["uid"] for rule in rules]
    for rule in rules:
        written = state.rules[rule["uid"]]
        assert (written["ruleGroup"], written["provenance"], written["data"]) == ("tallystream", "api", rule["data"])
        assert written["annotations"]["__dashboardUid__"] == rule["dashboardUid"]
        assert written["annotations"]["__panelId__"] == str(rule["panelId"])
        assert "notification_settings" not in written
        model = {name: value for name, value in written.items() if name != "provenance"}
        assert json.loads(json.dumps(alerting.Rule.from_json(model), cls=JSONEncoder)) == model, "Grafana's own model"
    assert state.intervals == {("tallystream-folder", "tallystream"): 60}
    assert push.output.splitlines()[-1] == f"Done: {len(expected) + 2} created."
    assert f"+ created   {LAG}" in push.output


@pytest.mark.parametrize("versions_in_a_list", [True, False])
def test_a_second_push_saves_no_dashboard(grafana: GrafanaStub, push: Pusher, versions_in_a_list: bool) -> None:
    """So a dashboard has a version for each change. The rules are written again: they are the same."""
    grafana.versions_in_a_list = versions_in_a_list
    push()
    rules = dict(grafana.state.rules)
    assert push() == [RULES]
    assert grafana.state.rules == rules
    assert push.output.splitlines()[-1] == "Done: 6 unchanged, 1 updated."


def test_what_is_generated_differently_is_updated(grafana: GrafanaStub, push: Pusher) -> None:
    """Dashboards and rules have the new settings, and a rule that is no longer generated is gone."""
    push()
    grafana.state.rules["former"] = grafana.state.rules["tallystream-lag-seconds"] | {"uid": "former"}
    assert push(CHANGED) == [SAVE] * 5 + [RULES]
    assert "former" not in grafana.state.rules
    limit = grafana.state.rules["tallystream-lag-seconds"]["data"][2]["model"]["conditions"][0]["evaluator"]["params"]
    assert limit == [60]


def test_a_dry_run_writes_nothing(grafana: GrafanaStub, push: Pusher) -> None:
    """It lists what a push would do. Its exit code is 1 if the push would be refused."""
    assert push(dry_run=True) == []
    assert "+ created   rule group tallystream" in push.output
    assert push.code == 0
    push()
    save_as_person(grafana, "tallystream-lag", "My lag")
    assert push(dry_run=True) == []
    assert f"~ updated   {LAG} (it was last saved by anna)" in push.output
    assert push.code == 1


def test_a_failed_push_can_be_run_again(grafana: GrafanaStub, push: Pusher) -> None:
    """The output says what was done, and the error has no secret; the next push does the rest."""
    grafana.fail(SAVE, 500, f"disk full, token {TOKEN}")
    error = push.failed()
    assert error.startswith("dashboard Tallystream Instances [tallystream-instances]: ")
    assert "Grafana could not save a dashboard (500: disk full, token ***)" in error
    assert push.output == "+ created   folder Tallystream [tallystream-folder]"
    assert push() == [SAVE] * 5 + [RULES]


def test_a_changed_dashboard_is_overwritten_only_with_force(grafana: GrafanaStub, push: Pusher) -> None:
    """The push is refused, with who saved it, and writes nothing, also not another resource."""
    push()
    save_as_person(grafana, "tallystream-lag", "My lag")
    assert f"{LAG}: it was last saved by anna. --force overwrites" in push.refused(CHANGED)
    assert push(force=True) == [SAVE, RULES]
    assert grafana.state.dashboards["tallystream-lag"]["dashboard"]["title"] == "Tallystream Lag"
    assert push() == [RULES]


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
    grafana.state.rules["theirs"] = grafana.state.rules["tallystream-lag-seconds"] | theirs
    assert "rule group tallystream: no push wrote Theirs" in push.refused()
    push(force=True)
    assert "theirs" not in grafana.state.rules


def test_a_folder_that_was_renamed_keeps_its_title(grafana: GrafanaStub, push: Pusher) -> None:
    """A folder belongs to people once it exists."""
    push()
    grafana.state.folders["tallystream-folder"]["title"] = "Team A"
    push(force=True)
    assert grafana.state.folders["tallystream-folder"]["title"] == "Team A"


def test_the_data_source_must_exist(grafana: GrafanaStub, push: Pusher) -> None:
    """Without it the rules could not be evaluated: nothing is written, and the error says what to do."""
    with pytest.raises(ConfigError, match=r"--datasource-uid: 'mine' can't be used; .* add one"):
        push(Settings(datasource_uid="mine"))
    assert grafana.writes == []
    grafana.state.datasources["mine"] = {"uid": "mine"}
    push(Settings(datasource_uid="mine"))
    assert grafana.state.rules["tallystream-lag-seconds"]["data"][0]["datasourceUid"] == "mine"


def test_the_command_applies_its_options(grafana: GrafanaStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pushed objects have the options' values. A dry run writes nothing."""
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    line = ["dashboards", "push", f"--grafana-url={grafana.url}", "--flavour=prometheus", "--uid-prefix=mine"]
    line += ["--folder=Mine", "--datasource-uid=tallystream-prometheus", "--contact-point=On call"]
    line += ["--threshold=lag-seconds=60"]
    assert CliRunner().invoke(main.app, [*line, "--dry-run"]).exit_code == 0
    assert grafana.writes == []
    assert CliRunner().invoke(main.app, line).exit_code == 0
    assert grafana.state.folders["mine-folder"]["title"] == "Mine"
    rule = grafana.state.rules["mine-lag-seconds"]
    assert rule["notification_settings"] == {"receiver": "On call"}
    assert "more than 60 s behind" in rule["annotations"]["description"]


def test_a_dashboard_that_is_saved_during_the_push_is_not_overwritten(
    grafana: GrafanaStub, push: Pusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request names the version that was read, so Grafana refuses it."""
    push()
    save = grafana.state.save_dashboard

    def save_after_a_person(body: dict[str, Any], by: str) -> Any:
        monkeypatch.setattr(grafana.state, "save_dashboard", save)
        save_as_person(grafana, "tallystream-instances", "Quicker")
        return save(body, by)

    monkeypatch.setattr(grafana.state, "save_dashboard", save_after_a_person)
    assert "changed by someone else" in push.failed(CHANGED)
    assert grafana.state.dashboards["tallystream-instances"]["dashboard"]["title"] == "Quicker"


def pushed(url: str, *, env: dict[str, str] = ENV, ca_file: Path | None = None) -> int:
    """Push, and return the exit code."""
    return run(Grafana(url, env, ca_file), Settings(), lambda _: None)


def error_of(url: str, *, env: dict[str, str] = ENV, ca_file: Path | None = None) -> str:
    """Push, and return the message of the ConfigError: one line without secrets."""
    with pytest.raises(ConfigError) as raised:
        pushed(url, env=env, ca_file=ca_file)
    message = str(raised.value)
    assert not any(secret in message for secret in env.values() if secret and "/" not in secret)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("url", ["grafana:3000", "ftp://grafana", "http://", "http://[1", "http://g:x", "http://g?a=b"])
def test_an_invalid_url_is_refused(url: str) -> None:
    """The error shows the URL and an example of a valid one."""
    assert error_of(url).startswith(f"--grafana-url: {url!r} can't be used; give a URL, as in https://")


@pytest.mark.parametrize("scheme", ["https://", "//", ""])
def test_a_password_in_the_url_is_refused_and_not_shown(scheme: str) -> None:
    """User and password do not belong into the URL: the token is the secret."""
    message = error_of(f"{scheme}admin:hunter2@grafana.example.org")
    assert "remove user and password" in message
    assert "hunter2" not in message


def test_the_error_of_a_refused_connection_has_the_reason() -> None:
    """It is the innermost one, as the operating system names it."""
    url = f"http://127.0.0.1:{free_port()}"
    message = error_of(url)
    assert message.startswith(f"--grafana-url: {url!r} can't be used; the server can't be reached (")
    assert "efused" in message
    assert " object at " not in message


def test_a_server_that_is_not_grafana_is_recognized(grafana: GrafanaStub) -> None:
    """The error suggests the path of a reverse proxy."""
    assert "the server is not Grafana; add the path of the reverse proxy" in error_of(f"{grafana.url}/elsewhere")


def test_a_redirect_is_not_followed(grafana: GrafanaStub) -> None:
    """A redirected write would become a read; the error asks for the other URL."""
    grafana.redirect = "https://grafana.example.org"
    assert "it redirects to another URL: give that one" in error_of(grafana.url)


def test_a_rejected_token_is_reported(grafana: GrafanaStub) -> None:
    """After 401 the error says where to create a token."""
    message = error_of(grafana.url, env=ENV | {"GRAFANA_TOKEN": "glsa_wrong"})
    assert message.startswith("GRAFANA_TOKEN: '***' can't be used; ")
    assert "rejects it (401): create a token of a service account" in message


def test_a_token_that_may_not_read_is_reported(grafana: GrafanaStub) -> None:
    """After 403 the error says what the token may not do, with Grafana's message; nothing is written."""
    grafana.fail("GET /folders/.*", 403, "Permissions needed: folders:read")
    message = error_of(grafana.url)
    assert "may not read the folder (403: Permissions needed: folders:read)" in message
    assert grafana.writes == []


def test_the_token_can_be_in_a_file(grafana: GrafanaStub, push: Pusher, tmp_path: Path) -> None:
    """GRAFANA_TOKEN_FILE names it; a newline at its end does not belong to the token. A missing token is reported."""
    assert error_of(grafana.url, env={"": ""}).endswith("or name a file that contains it in GRAFANA_TOKEN_FILE.")
    file = tmp_path / "token"
    env = {**ENV, "GRAFANA_TOKEN": "", "GRAFANA_TOKEN_FILE": str(file)}
    assert "GRAFANA_TOKEN_FILE: " in error_of(grafana.url, env=env)
    file.write_text("\n", encoding="utf-8")
    assert "it is empty: write the secret into it" in error_of(grafana.url, env=env)
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    assert push(env=env) != []


def test_no_secret_is_logged(push: Pusher, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the push nor a library logs a secret, even at the level DEBUG."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="urllib3.connectionpool")
    push()
    assert caplog.text != ""
    assert not any(secret in caplog.text for secret in ENV.values())


def test_grafana_behind_a_reverse_proxy() -> None:
    """The URL may have a path, with and without a slash at the end."""
    with GrafanaStub(path="/grafana") as stub:
        for url in (stub.url, f"{stub.url}/"):
            assert pushed(url) == 0
        assert stub.problems == []


def test_ca_file_makes_a_certificate_trusted(tmp_path: Path) -> None:
    """Without it the error suggests it; a file that does not exist is refused."""
    certificate, key = self_signed(tmp_path, "grafana")
    with GrafanaStub(certificate=(certificate, key)) as stub:
        message = error_of(stub.url)
        assert message.startswith("--ca-file is not set; ")
        assert f"the certificate of {stub.url} is not trusted (" in message
        for name in ("none.pem", "n" * 300):
            assert "--ca-file: " in error_of(stub.url, ca_file=tmp_path / name)
        assert pushed(stub.url, ca_file=certificate) == 0
