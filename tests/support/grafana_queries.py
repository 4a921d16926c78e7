"""Run the queries of dashboards and alert rules as Grafana does: interpolate variables and macros, then ask the store.

Sources: "Variable syntax" (formats regex and the default of each data source), "Template variables" of the InfluxDB and
Prometheus data sources, "Annotate visualizations" (grafana.com/docs).
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from support.prometheus import Prometheus
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.grafana.generate import files, rule_group
from tallystream_dashboards.grafana.settings import Settings

Row = dict[str, Any]

VARIABLE = re.compile(r"\$(?:([a-z_]\w*)|\{(\w+)(?::(\w+))?\})")
BUILT_IN = frozenset({"__interval", "__rate_interval", "__url_time_range", "__value", "__data", "__field"})
SELECTED: dict[str, str | list[str]] = {
    "app": ["orders"],
    "instance": ["orders-1", "orders-2"],
    "group": ".*",
    "topic": ".*",
}
"""The selected values of a dashboard's variables; the metric depends on the panel."""
METRIC_OF = {
    "Gauge": "queue.length",
    "Value by instance": "queue.length",
    "Gauges by metric and app": "queue.length",
    "Quantiles": "request.time",
    "Rates as the instances report them": "requests",
}
"""The selected metric of a panel that needs a certain type. Other panels have records.processed."""


def variables_of(text: str) -> set[str]:
    """Return the dashboard's variables that a text uses."""
    return {match[1] or match[2] for match in VARIABLE.finditer(text)} - BUILT_IN


def interpolate(
    text: str, flavour: str, selected: Mapping[str, str | list[str]], *, start_ms: int, end_ms: int, step_s: int = 15
) -> str:
    """Return the query as Grafana sends it; `selected` has one or several values of each variable."""
    start, end = (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z") for ms in (start_ms, end_ms)
    )
    macros = {
        "flux": {"v.timeRangeStart": start, "v.timeRangeStop": end, "v.windowPeriod": f"{step_s}s"},
        "prometheus": {"$__rate_interval": f"{4 * step_s}s", "$__interval": f"{step_s}s"},
    }[flavour]
    for macro, value in sorted(macros.items(), key=lambda item: -len(item[0])):
        text = text.replace(macro, value)

    def value_of(match: re.Match[str]) -> str:
        return _format(selected[match[1] or match[2]], match[3] or "", flavour)

    return VARIABLE.sub(value_of, text)


def _format(value: str | list[str], fmt: str, flavour: str) -> str:
    if isinstance(value, str) and (value in {".*", ".+"} or (not fmt and flavour != "prometheus")):
        return value
    escape = _promql if flavour == "prometheus" and not fmt else _regex
    if isinstance(value, str):
        return escape(value)
    return escape(value[0]) if len(value) == 1 else "(" + "|".join(map(escape, value)) + ")"


def _regex(text: str) -> str:
    return re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", text)


def _promql(text: str) -> str:
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", text.replace("\\", "\\\\\\\\"))


def flux(store: StoreSettings, text: str) -> list[Row]:
    """Run a Flux query, and return the rows of all tables."""
    from influxdb_client import InfluxDBClient

    with InfluxDBClient(url=store.where, token=store.token, org=store.org) as client:
        tables = client.query_api().query(text)
    return [dict(record.values) for table in tables for record in table.records]


@contextmanager
def prometheus(folder: Path, scrapes: list[tuple[int, str]]) -> Iterator[str]:
    """Run a Prometheus with these earlier scrapes (epoch ms, text) until the block ends; yield its URL."""
    (folder / "scrapes.txt").write_text(open_metrics(scrapes), encoding="utf-8")
    command = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "-q",
        str(folder / "scrapes.txt"),
        str(folder / "data"),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with Prometheus(folder) as running:
        yield running.url


def open_metrics(scrapes: list[tuple[int, str]]) -> str:
    """Return scrapes as OpenMetrics with timestamps, grouped by name, as promtool reads them."""
    lines: dict[str, list[str]] = {}
    for ts_ms, text in scrapes:
        for line in text.splitlines():
            if not line.startswith("#"):
                name = line.partition("{")[0].partition(" ")[0]
                lines.setdefault(name, []).append(f"{line} {ts_ms / 1000}")
    return "\n".join([*(line for group in lines.values() for line in group), "# EOF", ""])


def promql(url: str, text: str, *, at_ms: int) -> list[Row]:
    """Run an instant query, and return its samples: labels and `value`."""
    form = urllib.parse.urlencode({"query": text, "time": at_ms / 1000}).encode()
    with urllib.request.urlopen(f"{url}/api/v1/query", form, timeout=30) as response:
        samples = json.load(response)["data"]["result"]
    return [{**sample["metric"], "value": float(sample["value"][1])} for sample in samples]


def promql_range(url: str, text: str, *, start_ms: int, end_ms: int) -> list[Row]:
    """Run a range query, and return its series: labels and `values`."""
    query = {"query": text, "start": start_ms / 1000, "end": end_ms / 1000, "step": 15}
    form = urllib.parse.urlencode(query).encode()
    with urllib.request.urlopen(f"{url}/api/v1/query_range", form, timeout=30) as response:
        series = json.load(response)["data"]["result"]
    return [{**one["metric"], "values": [float(value) for _, value in one["values"]]} for one in series]


def label_values(url: str, text: str, *, at_ms: int) -> set[str]:
    """Return the values of Grafana's `label_values(selector, label)` in the hour before."""
    selector, _, label = text.removeprefix("label_values(").removesuffix(")").rpartition(", ")
    query = urllib.parse.urlencode({"match[]": selector, "start": at_ms / 1000 - 3600, "end": at_ms / 1000})
    with urllib.request.urlopen(f"{url}/api/v1/label/{label}/values?{query}", timeout=30) as response:
        return set(json.load(response)["data"])


class Rule(NamedTuple):
    """A rule of Grafana: it fires if its query's result is above the limit, with the labels that its texts name."""

    slug: str
    query: str
    limit: float
    labels: frozenset[str]
    content: dict[str, Any]


def rules(settings: Settings) -> list[Rule]:
    """Return the rules that Grafana evaluates."""
    found = []
    for rule in rule_group(settings)["rules"]:
        query, _, threshold = rule["data"]
        found.append(
            Rule(
                rule["uid"].removeprefix(f"{settings.uid_prefix}-"),
                query["model"].get("query") or query["model"]["expr"],
                threshold["model"]["conditions"][0]["evaluator"]["params"][0],
                frozenset(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))),
                rule,
            )
        )
    return found


def prometheus_rules(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the rules that Prometheus evaluates, by their slugs."""
    (group,) = yaml.safe_load(files(settings)["rules/tallystream.rules.yaml"])["groups"]
    return {rule["annotations"]["runbook_url"].partition("#")[2]: rule for rule in group["rules"]}
