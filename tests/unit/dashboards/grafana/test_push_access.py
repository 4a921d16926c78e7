"""How `dashboards push` gets at a Grafana: token, permissions, path; and that no secret is told; on the stub."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from support.grafana_made import SECRETS, TOKEN, made
from support.grafana_stub import GrafanaStub
from tallystream.errors import ConfigError
from tallystream_dashboards.grafana.push.job import PushSettings, run

if TYPE_CHECKING:
    from pathlib import Path

    from support.grafana_pushing import Pusher


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
    caplog.set_level(logging.DEBUG, logger="urllib3.connectionpool")
    push()
    assert caplog.text != ""
    assert not any(secret in caplog.text for secret in SECRETS.values())


def test_served_below_a_path(tmp_path: Path) -> None:
    """A Grafana behind a proxy at /grafana, with and without a slash at the end."""
    with GrafanaStub(TOKEN, below="/grafana") as stub:
        for url in (stub.url, f"{stub.url}/"):
            assert run(PushSettings(url=url), lambda _: None, env=SECRETS, make=made()) == 0
        assert stub.problems == []
