"""`dashboards push`: URL, certificates, token and secrets; each error is one sentence."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from support.certificates import encrypted, self_signed
from support.grafana_push import ENV, TOKEN
from support.grafana_stub import GrafanaStub
from tallystream.errors import ConfigError
from tallystream_cli.servers.process import free_port
from tallystream_dashboards.grafana.push import PushSettings, run

if TYPE_CHECKING:
    from pathlib import Path

    from support.grafana_push import Pusher


def error_of(url: str, *, env: dict[str, str] | None = None, **options: Any) -> str:
    """Push, and return the message of the ConfigError: one line without secrets."""
    with pytest.raises(ConfigError) as raised:
        run(PushSettings(url=url, **options), lambda _: None, env=ENV if env is None else env)
    message = str(raised.value)
    assert not any(secret in message for secret in (env or ENV).values() if secret and "/" not in secret)
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
    with GrafanaStub(TOKEN, path="/grafana") as stub:
        for url in (stub.url, f"{stub.url}/"):
            assert run(PushSettings(url=url), lambda _: None, env=ENV) == 0
        assert stub.problems == []


def test_ca_file_makes_a_certificate_trusted(tmp_path: Path) -> None:
    """Without it the error suggests it; a file that does not exist is refused."""
    certificate, key = self_signed(tmp_path, "grafana")
    with GrafanaStub(TOKEN, certificate=(certificate, key)) as stub:
        message = error_of(stub.url)
        assert message.startswith("--ca-file is not set; ")
        assert f"the certificate of {stub.url} is not trusted (" in message
        assert "--ca-file: " in error_of(stub.url, ca_file=tmp_path / "none.pem")
        settings = PushSettings(url=stub.url, ca_file=certificate)
        assert run(settings, lambda _: None, env=ENV) == 0


def test_a_client_certificate_is_presented(tmp_path: Path) -> None:
    """The environment names its files and the key's password; without them, or with a wrong one, the error says so."""
    server, (certificate, key) = self_signed(tmp_path, "grafana"), self_signed(tmp_path, "client")
    password = "k3y-p4ssword"
    env = ENV | {
        "GRAFANA_CERT_FILE": str(certificate),
        "GRAFANA_KEY_FILE": str(encrypted(key, password)),
        "GRAFANA_KEY_PASSWORD": password,
    }
    with GrafanaStub(TOKEN, certificate=server, clients=certificate) as stub:
        settings = PushSettings(url=stub.url, ca_file=server[0])
        assert run(settings, lambda _: None, env=env) == 0
        assert "GRAFANA_CERT_FILE" in error_of(stub.url, ca_file=server[0])
        wrong = env | {"GRAFANA_KEY_PASSWORD": "wr0ng-p4ssword"}
        assert error_of(stub.url, env=wrong, ca_file=server[0]).startswith("GRAFANA_CERT_FILE: ")
