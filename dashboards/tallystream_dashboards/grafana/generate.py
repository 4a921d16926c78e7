"""The files in `files` with the settings of a system: dashboards, provisioning for Grafana, alert rules for Prometheus.

Dashboards are JSON that can be imported as it is. The YAML in `files/provisioning` has placeholders, `@{name}`.
In Grafana's provisioning files `$NAME` is an environment variable. Sources: "Provision Grafana" in Grafana's
documentation, and "Alerting rules" in that of Prometheus.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import yaml

from tallystream_aggregator.sinks.influxdb.flux import literal
from tallystream_dashboards.grafana.settings import Settings

FILES = Path(__file__).with_name("files")

_HEADER = "# Written by `tallystream dashboards generate`. Its options are for what differs from system to system.\n"

_UID = re.compile(r"\btallystream-(?=(?:overview|metric|instances|lag|pipeline)\b)")
"""The prefix of the uids of the dashboards in their files."""


class _Filled(Template):
    delimiter = "@"


def files(settings: Settings) -> dict[str, str]:
    """Return the text of every file by its relative path; the same settings give the same files."""
    flavour = settings.flavour
    texts = {
        f"dashboards/{path.name}": _dashboard(path.read_text(encoding="utf-8"), settings)
        for path in sorted((FILES / flavour).glob("*.json"))
    }
    texts["provisioning/datasources/tallystream.yaml"] = _filled(f"{flavour}-datasources", settings)
    texts["provisioning/dashboards/tallystream.yaml"] = _filled("dashboards", settings)
    texts["provisioning/alerting/tallystream.yaml"] = _filled(f"{flavour}-alerting", settings)
    if flavour == "prometheus":
        texts["rules/tallystream.rules.yaml"] = _filled("prometheus-rules", settings)
    return texts


def write(texts: dict[str, str], out: Path) -> None:
    """Write the files below `out`, and leave other files as they are.

    Raises:
        OSError: a file can't be written.
    """
    for name, text in texts.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def dashboards(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the JSON model of each dashboard by its uid."""
    models = [json.loads(text) for name, text in files(settings).items() if name.startswith("dashboards/")]
    return {model["uid"]: model for model in models}


def rule_group(settings: Settings) -> dict[str, Any]:
    """Return the group of alert rules, as in Grafana's provisioning files."""
    group: dict[str, Any] = yaml.safe_load(_filled(f"{settings.flavour}-alerting", settings))["groups"][0]
    return group


class AlertRule(NamedTuple):
    """What an alert rule of Prometheus says when it fires: its name, what to do first, and the address of its section.

    `labels` are those that the rule itself has. It fires when its condition has held for `for_s` seconds.
    """

    name: str
    action: str
    runbook_url: str
    labels: dict[str, str]
    for_s: int


@cache
def alert_rules() -> dict[str, AlertRule]:
    """Return the alert rules of Prometheus by the end of their uids, their slugs."""
    rules = {}
    (group,) = yaml.safe_load(_filled("prometheus-rules", Settings()))["groups"]
    for rule in group["rules"]:
        texts = rule["annotations"]
        action, url = texts["description"].partition("What to do: ")[2], texts["runbook_url"]
        for_s = int(rule["for"].removesuffix("s"))
        rules[url.partition("#")[2]] = AlertRule(rule["alert"], action, url, rule["labels"], for_s)
    return rules


def _dashboard(text: str, settings: Settings) -> str:
    """Return a dashboard with the settings' uids, folder title, data source and bucket."""
    text = text.replace(f'"tallystream-{settings.flavour}"', json.dumps(settings.source_uid))
    text = _UID.sub(f"{settings.uid_prefix}-", text)
    title, bucket = (json.dumps(one, ensure_ascii=False)[1:-1] for one in (settings.folder_title, settings.bucket))
    text = re.sub(r'^  "title": "Tallystream', lambda _: f'  "title": "{title}', text, count=1, flags=re.MULTILINE)
    return re.sub(r'"(text|value)": "tallystream"', lambda m: f'"{m[1]}": "{bucket}"', text)


def _filled(name: str, settings: Settings) -> str:
    minutes = settings.thresholds.stopped_minutes
    texts = {
        "folder": settings.folder_title.replace("$", "$$"),
        "org": settings.org,
        "database": settings.bucket,
        "datasource_uid": settings.source_uid,
        "datasource_url": settings.url,
        "dashboards_path": settings.dashboards_path,
        "runbook_url": settings.runbook_url,
    }
    values = {
        **{one: json.dumps(text, ensure_ascii=False)[1:-1] for one, text in texts.items()},
        **asdict(settings.thresholds),
        "prefix": settings.uid_prefix,
        "bucket": literal(settings.bucket),
        # A rule fires above a number. Neither Flux nor PromQL multiplies a duration.
        "silent_instances_less_1": settings.thresholds.silent_instances - 1,
        "stopped_minutes_5": 5 * minutes,
        "stopped_minutes_36": 36 * minutes,
        "stopped_minutes_fifth_s": 12 * minutes,
    }
    text = (FILES / "provisioning" / f"{name}.yaml").read_text(encoding="utf-8")
    return _HEADER + _Filled(text).substitute(values)
