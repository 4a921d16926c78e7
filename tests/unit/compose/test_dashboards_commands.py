"""`tallystream dashboards push`: its exit codes and sentences, against the stub of Grafana."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from support.grafana_made import SECRETS, TOKEN
from support.grafana_stub import GrafanaStub
from tallystream.errors import ConfigError
from tallystream_cli import main
from tallystream_dashboards.grafana.push.model import PushRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrafanaStub]:
    """A Grafana whose token is in the environment, as are the other secrets."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with GrafanaStub(TOKEN) as stub:
        yield stub
    assert stub.problems == []


def push(grafana: GrafanaStub, *options: str) -> Any:
    """Run the command."""
    return CliRunner().invoke(main.app, ["dashboards", "push", "--grafana-url", grafana.url, *options])


def test_it_pushes_what_is_generated_with_the_options(grafana: GrafanaStub) -> None:
    """Options reach what is made; a dry run writes nothing, and a second push has nothing to do."""
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
    assert grafana.store.folders["mine-folder"]["title"] == "Mine"
    assert grafana.store.datasources["mine-prometheus"]["url"] == "http://p:9090"
    assert grafana.store.contacts["mine-contact"]["settings"] == {"addresses": "ops@example.org"}
    again = push(grafana, *options, "--prune", "--contact", "email", "--contact-address", "ops@example.org")
    assert again.stdout.endswith("nothing to do.\n")


def test_what_a_person_changed(grafana: GrafanaStub) -> None:
    """Refused, kept or overwritten, as the options say; a dry run that would be refused is exit code 1."""
    push(grafana)
    grafana.store.datasources["tallystream-flux"]["url"] = "http://elsewhere:8086"
    assert isinstance(push(grafana).exception, PushRefusedError)
    dry = push(grafana, "--dry-run")
    assert dry.exit_code == 1
    assert '~ url: "http://elsewhere:8086" → "http://localhost:8086"' in dry.stdout
    assert push(grafana, "--keep-changed").exit_code == 0
    assert grafana.store.datasources["tallystream-flux"]["url"] == "http://elsewhere:8086"
    assert push(grafana, "--overwrite").exit_code == 0
    assert grafana.store.datasources["tallystream-flux"]["url"] == "http://localhost:8086"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--overwrite", "--keep-changed"), "--overwrite: '--keep-changed' can't be used; give one of the two."),
        (("--flavour", "sql"), "--flavour: 'sql' can't be used; give flux or influxql or prometheus."),
        (("--contact", "pager"), "--contact: 'pager' can't be used; give webhook or email."),
        (("--lag-seconds", "-1"), "--lag-seconds: -1.0 can't be used"),
    ],
)
def test_options_that_cannot_be_used(grafana: GrafanaStub, options: tuple[str, ...], sentence: str) -> None:
    """One sentence that names the option."""
    error = push(grafana, *options).exception
    assert isinstance(error, ConfigError)
    assert str(error).startswith(sentence)


def test_there_is_no_option_for_the_token(grafana: GrafanaStub) -> None:
    """What is on a command line is seen by every user of the machine."""
    shown = CliRunner().invoke(main.app, ["dashboards", "push", "--help"]).stdout
    assert "--grafana-url" in shown
    assert "--token" not in shown
