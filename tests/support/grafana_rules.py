"""The alert rules in the generated files, with what the tests evaluate."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

from tallystream_dashboards.grafana.generate import files, rule_group
from tallystream_dashboards.grafana.settings import Settings


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
