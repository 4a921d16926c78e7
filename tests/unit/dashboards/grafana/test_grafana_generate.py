"""The generated files: those in the repository are up to date, and Grafana reads the generated resources from them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tallystream_cli import main
from tallystream_dashboards.grafana.generate import files
from tallystream_dashboards.grafana.resources import resources
from tallystream_dashboards.grafana.settings import FLAVOURS, Flavour, Settings

GENERATED = Path(__file__).parents[4] / "dashboards" / "generated"

DASHBOARDS = GENERATED.parent / "tallystream_dashboards" / "grafana" / "files"

URLS = {"flux": "$INFLUXDB_URL", "prometheus": "$PROMETHEUS_URL"}
"""The stores' URLs in the committed files: Grafana in Compose has them in its environment."""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_committed_files_are_what_the_command_writes(flavour: Flavour, tmp_path: Path) -> None:
    """`dashboards generate --flavour F --datasource-url '$…' --out dashboards/generated/F` changes no file."""
    result = CliRunner().invoke(
        main.app,
        ["dashboards", "generate", "--flavour", flavour, "--datasource-url", URLS[flavour], "--out", str(tmp_path)],
        env={"INFLUXDB_ORG": None, "INFLUXDB_BUCKET": None},
        catch_exceptions=False,
    )
    assert result.exit_code == 0
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    folder = GENERATED / flavour
    committed = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    committed |= {f"dashboards/{path.name}": path.read_text() for path in (DASHBOARDS / flavour).iterdir()}
    assert written == committed
    assert set(result.stdout.split()) == {str(tmp_path / name) for name in committed}


def as_grafana_reads(value: Any, env: dict[str, str]) -> Any:
    """Return a provisioned value as Grafana reads it: $NAME and ${NAME} are environment variables, $$ is a dollar."""
    if isinstance(value, dict):
        return {name: as_grafana_reads(one, env) for name, one in value.items()}
    if isinstance(value, list):
        return [as_grafana_reads(one, env) for one in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\$(\$|\w+|{\w+})", lambda m: "$" if m[1] == "$" else env.get(m[1].strip("{}"), ""), value)


ENV = {"INFLUXDB_TOKEN": "the-token", "TALLYSTREAM_ALERT_URL": "https://hook"}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_provisioning_has_the_same_resources_as_the_api(flavour: Flavour) -> None:
    """Grafana reads data source, folder, contact point and rules of `resources` from the files."""
    settings = Settings(flavour=flavour, folder_title="Cash$Flow")
    texts, generated = files(settings, dashboards_path="/boards"), resources(settings)
    (source,) = as_grafana_reads(yaml.safe_load(texts["provisioning/datasources/tallystream.yaml"]), ENV)["datasources"]
    expected = json.loads(json.dumps(generated.datasource).replace("$INFLUXDB_TOKEN", "the-token"))
    assert source == expected | {"orgId": 1, "editable": False}
    (provider,) = as_grafana_reads(yaml.safe_load(texts["provisioning/dashboards/tallystream.yaml"]), ENV)["providers"]
    assert (provider["folder"], provider["folderUid"]) == ("Cash$Flow", "tallystream-folder")
    assert provider["options"] == {"path": "/boards"}
    alerting = yaml.safe_load(texts["provisioning/alerting/tallystream.yaml"])
    (contact,) = as_grafana_reads(alerting["contactPoints"], ENV)
    assert contact["name"] == "Cash$Flow"
    assert contact["receivers"][0]["settings"] == {"url": "https://hook"}
    (group,) = alerting["groups"]
    assert as_grafana_reads(group["folder"], ENV) == "Cash$Flow"
    for read, expected_rule in zip(group["rules"], generated.rule_group["rules"], strict=True):
        annotations = dict(expected_rule["annotations"])
        assert read["dashboardUid"] == annotations.pop("__dashboardUid__")
        assert str(read["panelId"]) == annotations.pop("__panelId__")
        # Grafana does not expand variables in these two.
        assert read["annotations"] == annotations
        assert read["data"] == expected_rule["data"]
        assert as_grafana_reads(read["notification_settings"], ENV) == expected_rule["notification_settings"]
        for name in ("uid", "title", "condition", "for", "noDataState", "execErrState", "labels"):
            assert read[name] == expected_rule[name]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_file_has_a_secret_or_a_host(flavour: Flavour) -> None:
    """The files name only localhost, and references to environment variables instead of secrets."""
    for text in files(Settings(flavour=flavour)).values():
        assert set(re.findall(r"https?://[^\s\"/]+", text)) <= {"http://localhost:8086", "http://localhost:9090"}
        assert "token:" not in text.replace("token: $INFLUXDB_TOKEN", "")


def test_thresholds_are_in_the_rules_of_grafana_and_prometheus(tmp_path: Path) -> None:
    """The rules compare with the number of the option, and their texts name it."""
    options = ["--threshold", "lag-seconds=77", "--flavour", "prometheus", "--out", str(tmp_path)]
    assert CliRunner().invoke(main.app, ["dashboards", "generate", *options]).exit_code == 0
    (rules,) = yaml.safe_load((tmp_path / "rules/tallystream.rules.yaml").read_text())["groups"]
    (rule,) = [one for one in rules["rules"] if one["alert"] == "TallystreamLagTooOld"]
    assert rule["expr"].endswith(" > 77")
    assert "more than 77 s behind" in rule["annotations"]["description"]
    (group,) = yaml.safe_load((tmp_path / "provisioning/alerting/tallystream.yaml").read_text())["groups"]
    (one,) = [one for one in group["rules"] if one["uid"] == "tallystream-lag-seconds"]
    assert one["data"][2]["model"]["conditions"][0]["evaluator"] == {"type": "gt", "params": [77.0]}


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The error names the option and the folder."""
    (tmp_path / "file").touch()
    result = CliRunner().invoke(main.app, ["dashboards", "generate", "--out", str(tmp_path / "file" / "x")])
    assert str(result.exception).startswith(f"--out: {tmp_path / 'file' / 'x'} can't be written")
