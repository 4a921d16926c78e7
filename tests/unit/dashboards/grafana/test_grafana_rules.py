"""The list of alert rules: slugs, texts and thresholds."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from tallystream_dashboards.grafana.rules import RULES
from tallystream_dashboards.grafana.settings import FLAVOURS, Settings, Thresholds

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.rules import Rule


def test_slugs_are_anchors_and_unique() -> None:
    """A slug is the anchor of a section, and no two rules share one."""
    slugs = [rule.slug for rule in RULES]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", slug) for slug in slugs)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_the_placeholders_of_a_text_are_replaced(rule: Rule) -> None:
    """Every placeholder is a threshold, the value or a label of the rule; reason and action are sentences."""
    for text in rule.annotations(Settings(), value="VALUE", label="LABEL-NAME").values():
        assert "%(" not in text
        assert "{{" not in text
        assert set(re.findall(r"LABEL-(\w+)", text)) <= set(rule.labels)
    assert rule.reason.endswith(".")
    assert rule.action.endswith(".")


def test_every_threshold_belongs_to_a_rule() -> None:
    """Each is the limit of a rule, or in its texts: no option is without effect."""
    used = {rule.threshold for rule in RULES if rule.threshold}
    used |= {name for rule in RULES for name in re.findall(r"%\((\w+)\)", rule.reason + rule.summary)}
    assert used == {one.name for one in fields(Thresholds)}


@pytest.mark.parametrize(
    ("bucket", "literal"),
    [
        ("tallystream", '"tallystream"'),
        ("größe", '"größe"'),
        ("a${b}", '"a\\${b}"'),
        ("$a", '"$a"'),
        ('a"b\\', '"a\\"b\\\\"'),
        ("a\tb", '"a\\x09b"'),
    ],
)
def test_a_rule_in_flux_names_any_bucket(bucket: str, literal: str) -> None:
    """Flux has other escapes than JSON, none for other letters, and `${` would begin an interpolation."""
    for rule in RULES:
        query = rule.query(Settings(flavour="flux", bucket=bucket))
        assert set(re.findall(r"from\(bucket: (.*)\)\n", query)) == {literal}


def test_only_counters_are_processed_twice() -> None:
    """A meter may have the name of a counter with positions. It is another metric, and neither language adds it."""
    (rule,) = [rule for rule in RULES if rule.slug == "processed-twice"]
    for text in (rule.query(Settings(flavour=flavour)) for flavour in FLAVOURS):
        assert re.search(r'metric_type ?==? ?"counter"', text)
        assert "meter" not in text
