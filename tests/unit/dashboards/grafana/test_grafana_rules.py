"""The list of alert rules: each says what it means and what to do, and knows its thresholds."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from tallystream_dashboards.grafana.alerts.rules import RULES
from tallystream_dashboards.grafana.settings import Thresholds

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.alerts.rules import Rule


def test_slugs_are_anchors_and_unique() -> None:
    """A slug is the anchor of a section, and no two rules share one."""
    slugs = [rule.slug for rule in RULES]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", slug) for slug in slugs)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_a_rule_says_what_it_means_and_what_to_do(rule: Rule) -> None:
    """Every text is whole sentences, and every placeholder in it is a threshold, the value or a label of the rule."""
    for text in (rule.summary, rule.reason, rule.action):
        said = rule.text(text, Thresholds(), value="VALUE", label="LABEL-NAME")
        assert "%(" not in said
        assert "{{" not in said
        assert set(re.findall(r"LABEL-(\w+)", said)) <= set(rule.labels)
    assert rule.reason.endswith(".")
    assert rule.action.endswith(".")


def test_every_threshold_belongs_to_a_rule() -> None:
    """A threshold that changes nothing would be an option that lies: each is a rule's limit, or in its text."""
    used = {rule.threshold for rule in RULES if rule.threshold}
    used |= {name for rule in RULES for name in re.findall(r"%\((\w+)\)", rule.reason + rule.summary)}
    assert used == {one.name for one in fields(Thresholds)}


def test_a_limit_is_the_threshold() -> None:
    """What is compared with comes from the thresholds, and is 0 where there is none."""
    limits = {rule.slug: rule.limit(Thresholds(lag_seconds=7.5)) for rule in RULES}
    assert limits["lag-seconds"] == 7.5
    assert limits["lag-status"] == 0
