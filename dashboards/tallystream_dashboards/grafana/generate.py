"""All of a flavour as files: dashboards to import, provisioning for Grafana, rules for Prometheus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from tallystream_dashboards.grafana import provisioning
from tallystream_dashboards.grafana.alerts.rules_file import rules_file
from tallystream_dashboards.grafana.resources import resources

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_dashboards.grafana.settings import Settings

DASHBOARDS_PATH = "/var/lib/grafana/dashboards/tallystream"
"""Where Grafana finds the dashboards' files unless it is told otherwise."""

_HEAD = "# Made by `tallystream dashboards generate`: change its options, not this file.\n"


def files(settings: Settings, *, dashboards_path: str = DASHBOARDS_PATH) -> dict[str, str]:
    """Return the text of every file by its path below a folder: the same for the same settings."""
    made = resources(settings)
    found = {
        f"dashboards/{uid.removeprefix(settings.uid(''))}.json": _json(model) for uid, model in made.dashboards.items()
    }
    found["provisioning/datasources/tallystream.yaml"] = _yaml(provisioning.datasources(made))
    found["provisioning/dashboards/tallystream.yaml"] = _yaml(provisioning.provider(made, dashboards_path))
    if made.rule_groups:
        found["provisioning/alerting/tallystream.yaml"] = _yaml(provisioning.alerting(made))
    if settings.flavour == "prometheus":
        found["rules/tallystream.rules.yaml"] = _yaml(rules_file(settings))
    return found


def write(made: dict[str, str], out: Path) -> None:
    """Write the files below `out`; others there are left alone.

    Raises:
        OSError: a file can't be written.
    """
    for name, text in made.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are written as such; lists are indented; nothing is an anchor."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (the library's signature)
        """Write what occurs twice twice."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 (the same)
        """Indent lists, too."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _yaml(value: Any) -> str:
    return _HEAD + yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
