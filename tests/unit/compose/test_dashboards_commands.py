"""`tallystream dashboards push` with the stub of Grafana: its options, exit codes and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from support.grafana_push import ENV, TOKEN, save_as_person
from support.grafana_stub import GrafanaStub
from tallystream_cli import main
from tallystream_dashboards.grafana.push import PushRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrafanaStub]:
    """A stub of Grafana; its token is in the environment."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    with GrafanaStub(TOKEN) as stub:
        yield stub
    assert stub.problems == []


def push(grafana: GrafanaStub, *options: str) -> Any:
    """Run the command."""
    return CliRunner().invoke(main.app, ["dashboards", "push", "--grafana-url", grafana.url, *options])


def test_push_applies_the_options(grafana: GrafanaStub) -> None:
    """The pushed objects have the options' values. A dry run writes nothing."""
    options = ["--flavour=prometheus", "--uid-prefix=mine", "--folder=Mine", "--datasource-uid=tallystream-prometheus"]
    assert push(grafana, *options, "--dry-run").exit_code == 0
    assert grafana.writes == []
    assert push(grafana, *options, "--contact-point=On call", "--threshold=lag-seconds=60").exit_code == 0
    assert grafana.state.folders["mine-folder"]["title"] == "Mine"
    rule = grafana.state.rules["mine-lag-seconds"]
    assert rule["notification_settings"] == {"receiver": "On call"}
    assert "more than 60 s behind" in rule["annotations"]["description"]


def test_a_dashboard_that_a_person_changed(grafana: GrafanaStub) -> None:
    """By default the push is refused; --force overwrites the change. A dry run has exit code 1."""
    push(grafana)
    save_as_person(grafana, "tallystream-lag", "My lag")
    assert isinstance(push(grafana).exception, PushRefusedError)
    assert push(grafana, "--dry-run").exit_code == 1
    assert push(grafana, "--force").exit_code == 0
    assert grafana.state.dashboards["tallystream-lag"]["dashboard"]["title"] != "My lag"


def test_there_is_no_option_for_the_token(grafana: GrafanaStub) -> None:
    """Every user of the machine can read a command line."""
    shown = CliRunner().invoke(main.app, ["dashboards", "push", "--help"]).stdout
    assert "--grafana-url" in shown
    assert "--token" not in shown
