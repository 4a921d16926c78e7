"""`tallystream dashboards push` with the stub of Grafana: its options, exit codes and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from support.grafana_push import SECRETS, TOKEN
from support.grafana_stub import GrafanaStub
from tallystream.errors import ConfigError
from tallystream_cli import main
from tallystream_dashboards.grafana.push.model import PushRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrafanaStub]:
    """A stub of Grafana; its token and the other secrets are in the environment."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with GrafanaStub(TOKEN) as stub:
        yield stub
    assert stub.problems == []


def push(grafana: GrafanaStub, *options: str) -> Any:
    """Run the command."""
    return CliRunner().invoke(main.app, ["dashboards", "push", "--grafana-url", grafana.url, *options])


def test_push_applies_the_options(grafana: GrafanaStub) -> None:
    """The pushed objects have the options' values. A dry run and a second push write nothing."""
    options = (
        "--flavour",
        "prometheus",
        "--uid-prefix",
        "mine",
        "--folder",
        "Mine",
        "--datasource-url",
        "http://p:9090",
    )
    assert push(grafana, *options, "--dry-run").exit_code == 0
    assert grafana.writes == []
    assert push(grafana, *options, "--contact", "email", "--contact-address", "ops@example.org").exit_code == 0
    assert grafana.state.folders["mine-folder"]["title"] == "Mine"
    assert grafana.state.datasources["mine-prometheus"]["url"] == "http://p:9090"
    assert grafana.state.contacts["mine-contact"]["settings"] == {"addresses": "ops@example.org"}
    again = push(grafana, *options, "--prune", "--contact", "email", "--contact-address", "ops@example.org")
    assert again.stdout.endswith("nothing to do.\n")


def test_an_object_that_a_person_changed(grafana: GrafanaStub) -> None:
    """By default the push is refused; the options keep or overwrite the change. A dry run has exit code 1."""
    push(grafana)
    grafana.state.datasources["tallystream-flux"]["url"] = "http://elsewhere:8086"
    assert isinstance(push(grafana).exception, PushRefusedError)
    dry = push(grafana, "--dry-run")
    assert dry.exit_code == 1
    assert '~ url: "http://elsewhere:8086" → "http://localhost:8086"' in dry.stdout
    assert push(grafana, "--keep-changed").exit_code == 0
    assert grafana.state.datasources["tallystream-flux"]["url"] == "http://elsewhere:8086"
    assert push(grafana, "--overwrite").exit_code == 0
    assert grafana.state.datasources["tallystream-flux"]["url"] == "http://localhost:8086"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--overwrite", "--keep-changed"), "--overwrite: '--keep-changed' can't be used; give one of the two."),
        (("--flavour", "sql"), "--flavour: 'sql' can't be used; give flux or influxql or prometheus."),
        (("--contact", "pager"), "--contact: 'pager' can't be used; give webhook or email."),
        (("--lag-seconds", "-1"), "--lag-seconds: -1.0 can't be used"),
    ],
)
def test_an_invalid_option_is_rejected(grafana: GrafanaStub, options: tuple[str, ...], sentence: str) -> None:
    """The error names the option."""
    error = push(grafana, *options).exception
    assert isinstance(error, ConfigError)
    assert str(error).startswith(sentence)


def test_there_is_no_option_for_the_token(grafana: GrafanaStub) -> None:
    """Every user of the machine can read a command line."""
    shown = CliRunner().invoke(main.app, ["dashboards", "push", "--help"]).stdout
    assert "--grafana-url" in shown
    assert "--token" not in shown
