"""What can be wrong with the address, the certificate and the secrets: one sentence each, and nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.certificates import encrypted, self_signed
from support.grafana_made import SECRETS, TOKEN, made
from support.grafana_stub import GrafanaStub
from tallystream.errors import ConfigError
from tallystream_cli.servers.process import free_port
from tallystream_dashboards.grafana.push.job import PushSettings, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def said(url: str, *, env: dict[str, str] | None = None, **options: Any) -> str:
    """Push to an address that is no good, and return the sentence."""
    with pytest.raises(ConfigError) as raised:
        run(PushSettings(url=url, **options), lambda _: None, env=SECRETS if env is None else env, make=made())
    sentence = str(raised.value)
    assert not any(secret in sentence for secret in (env or SECRETS).values() if secret and "/" not in secret)
    assert len(sentence.splitlines()) == 1
    return sentence


@pytest.fixture
def grafana() -> Iterator[GrafanaStub]:
    """A Grafana to which nothing may be written."""
    with GrafanaStub(TOKEN) as stub:
        yield stub
    assert stub.writes == []


@pytest.mark.parametrize("url", ["grafana:3000", "ftp://grafana", "http://", "http://[1", "http://g:x", "http://g?a=b"])
def test_what_is_no_address(url: str) -> None:
    """Refused before anything is asked."""
    assert said(url).startswith(f"--grafana-url: {url!r} can't be used; give an address, as in https://")


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    """The token is the secret; what was written into the address by mistake is not in the sentence."""
    sentence = said("https://admin:hunter2@grafana.example.org")
    assert "leave user and password out" in sentence
    assert "hunter2" not in sentence


def test_nothing_answers() -> None:
    """The innermost reason is told, as the system calls it."""
    url = f"http://127.0.0.1:{free_port()}"
    assert said(url).startswith(f"--grafana-url: {url!r} can't be used; nothing answers there (")
    assert "efused" in said(url)
    assert " object at " not in said(url)


def test_a_name_that_is_none() -> None:
    """A host that cannot be found."""
    sentence = said("http://grafana.invalid")
    assert "nothing answers there (" in sentence
    assert " object at " not in sentence


def test_what_answers_is_no_grafana(grafana: GrafanaStub) -> None:
    """A wrong path, which is where many a Grafana is served below another one."""
    assert "what answers there is no Grafana; is the path missing" in said(f"{grafana.url}/elsewhere")


def test_a_redirect_is_not_followed(grafana: GrafanaStub) -> None:
    """A redirected write would become a read: the address that it leads to has to be given."""
    grafana.redirect = "https://grafana.example.org"
    assert "it redirects to another address: give that one" in said(grafana.url)


def test_the_token_is_refused(grafana: GrafanaStub) -> None:
    """401: what to make, and where; the token is not repeated."""
    sentence = said(grafana.url, env=SECRETS | {"GRAFANA_TOKEN": "glsa_wrong"})
    assert sentence.startswith("GRAFANA_TOKEN: '***' can't be used; ")
    assert "refuses it (401): make a token for a service account" in sentence


def test_the_token_may_not_read(grafana: GrafanaStub) -> None:
    """403: what it may not do, in Grafana's words too."""
    grafana.fail("GET /v1/provisioning/alert-rules", 403, "Permissions needed: alert.provisioning:read")
    sentence = said(grafana.url)
    assert "may not read the alert rules (403: Permissions needed: alert.provisioning:read)" in sentence


@pytest.mark.parametrize("name", ["GRAFANA_TOKEN", "INFLUXDB_TOKEN", "TALLYSTREAM_ALERT_URL"])
def test_a_secret_that_is_missing(grafana: GrafanaStub, name: str) -> None:
    """Its variable, and that a file does as well."""
    env = {key: value for key, value in SECRETS.items() if key != name}
    assert said(grafana.url, env=env).endswith(f"or name a file that contains it in {name}_FILE.")


def test_a_secrets_file_that_is_no_good(grafana: GrafanaStub, tmp_path: Path) -> None:
    """One that is not there, and one that is empty."""
    env = {**SECRETS, "GRAFANA_TOKEN": "", "GRAFANA_TOKEN_FILE": str(tmp_path / "token")}
    assert "GRAFANA_TOKEN_FILE: " in said(grafana.url, env=env)
    (tmp_path / "token").write_text("\n", encoding="utf-8")
    assert "it is empty: write the secret into it" in said(grafana.url, env=env)


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    """--ca-file is named, and helps; one that is no file is refused."""
    certificate, key = self_signed(tmp_path, "grafana")
    with GrafanaStub(TOKEN, certificate=(certificate, key)) as stub:
        sentence = said(stub.url)
        assert "its certificate is not trusted (" in sentence
        assert "--ca-file names the one to trust" in sentence
        assert "--ca-file: " in said(stub.url, ca_file=tmp_path / "none.pem")
        assert run(PushSettings(url=stub.url, ca_file=certificate), lambda _: None, env=SECRETS, make=made()) == 0


def test_a_server_that_asks_for_a_client_certificate(tmp_path: Path) -> None:
    """The certificate and the key are files that the environment names; without them the sentence says so."""
    server, (certificate, key) = self_signed(tmp_path, "grafana"), self_signed(tmp_path, "client")
    secret = "k3y-p4ssword"
    env = SECRETS | {
        "GRAFANA_CERT_FILE": str(certificate),
        "GRAFANA_KEY_FILE": str(encrypted(key, secret)),
        "GRAFANA_KEY_PASSWORD": secret,
    }
    with GrafanaStub(TOKEN, certificate=server, clients=certificate) as stub:
        settings = PushSettings(url=stub.url, ca_file=server[0])
        assert run(settings, lambda _: None, env=env, make=made()) == 0
        assert "GRAFANA_CERT_FILE" in said(stub.url, ca_file=server[0])
        wrong = env | {"GRAFANA_KEY_PASSWORD": "wr0ng-p4ssword"}
        assert said(stub.url, env=wrong, ca_file=server[0]).startswith("GRAFANA_CERT_FILE: ")
