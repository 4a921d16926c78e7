"""The generated files: those in the repository are up to date, and have the values of the settings."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from support.grafana_rules import rules
from tallystream.errors import ConfigError
from tallystream_cli import main
from tallystream_dashboards.grafana.generate import dashboards, files
from tallystream_dashboards.grafana.settings import FLAVOURS, Flavour, Settings, Thresholds

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


def test_a_folder_with_special_characters() -> None:
    """A dollar is doubled where Grafana reads it as the name of a variable, and quotes are escaped."""
    settings = Settings(folder_title='Cash$Flow "A"', dashboards_path="/boards")
    (provider,) = yaml.safe_load(files(settings)["provisioning/dashboards/tallystream.yaml"])["providers"]
    assert (provider["folder"], provider["folderUid"]) == ('Cash$$Flow "A"', "tallystream-folder")
    assert provider["options"] == {"path": "/boards"}
    assert dashboards(settings)["tallystream-lag"]["title"] == 'Cash$Flow "A" Lag'


@pytest.mark.parametrize(
    ("bucket", "literal"),
    [("größe", '"größe"'), ("a${b}", '"a\\${b}"'), ("$a", '"$a"'), ('a"b\\', '"a\\"b\\\\"'), ("a\tb", '"a\\x09b"')],
)
def test_rules_and_dashboards_in_flux_name_any_bucket(bucket: str, literal: str) -> None:
    """Flux has other escapes than JSON, none for other letters, and `${` would begin an interpolation."""
    settings = Settings(bucket=bucket)
    assert {name for rule in rules(settings) for name in re.findall(r"from\(bucket: (.*)\)\n", rule.query)} == {literal}
    for model in dashboards(settings).values():
        (variable,) = [one for one in model["templating"]["list"] if one["name"] == "bucket"]
        assert variable["current"]["value"] == bucket


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_file_has_a_secret_or_a_host(flavour: Flavour) -> None:
    """The files name only localhost, and references to environment variables instead of secrets."""
    for text in files(Settings(flavour=flavour)).values():
        assert set(re.findall(r"https?://[^\s\"/]+", text)) <= {"http://localhost:8086", "http://localhost:9090"}
        assert "token:" not in text.replace("token: $INFLUXDB_TOKEN", "")


def test_every_threshold_is_in_a_file() -> None:
    """No option is without effect."""
    texts = "".join(path.read_text() for path in (DASHBOARDS / "provisioning").iterdir())
    assert all(f"@{{{one.name}" in texts for one in fields(Thresholds))


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
    assert one["data"][2]["model"]["conditions"][0]["evaluator"] == {"type": "gt", "params": [77]}


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The error names the option and the folder."""
    (tmp_path / "file").touch()
    result = CliRunner().invoke(main.app, ["dashboards", "generate", "--out", str(tmp_path / "file" / "x")])
    assert str(result.exception).startswith(f"--out: {tmp_path / 'file' / 'x'} can't be written")


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"flavour": "sql"}, "--flavour: 'sql' can't be used; give flux or prometheus."),
    ({"uid_prefix": "a b"}, "--uid-prefix: 'a b' can't be used; give 1 to 15 letters, digits, _ or -."),
    ({"uid_prefix": "x" * 16}, "--uid-prefix"),
    ({"folder_title": " "}, "--folder"),
    ({"bucket": ""}, "--bucket is not set; give the name that it has in InfluxDB."),
    ({"org": ""}, "--org"),
    ({"datasource_url": "influxdb:8086"}, "--datasource-url"),
    ({"datasource_url": "http://influxdb:0"}, "--datasource-url"),
]


@pytest.mark.parametrize(("given", "message"), INVALID)
def test_an_invalid_setting_is_refused(given: dict[str, Any], message: str) -> None:
    """The error names the option, the value and the remedy."""
    with pytest.raises(ConfigError) as raised:
        Settings(**given)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "given", [{"lag_seconds": -1}, {"aggregator_seconds": 29}, {"stopped_minutes": 0}, {"dead_letters": 2**31}]
)
def test_thresholds_have_bounds(given: dict[str, Any]) -> None:
    """The error of a threshold out of bounds names it."""
    (name,) = given
    with pytest.raises(ConfigError, match=f"--threshold: '{name.replace('_', '-')}="):
        Thresholds(**given)
