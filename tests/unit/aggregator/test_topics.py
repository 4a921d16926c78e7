"""The topics' names and policies, and that their page names the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystream.aggregator.topics import DAY_MS, Topics, policies
from tallystream.reporter.errors import ConfigError

PAGE = Path(__file__).parents[3] / "docs" / "topics.md"


def test_a_prefix_keeps_systems_apart() -> None:
    """All six names begin with the prefix."""
    topics = Topics("test-1.")
    assert topics.agg == "test-1.metrics-agg"
    assert set(policies(topics)) == {f"test-1.{name}" for name in policies(Topics())}


@pytest.mark.parametrize("prefix", ["a b", "ä", "x" * 240, "a/b"])
def test_a_prefix_that_kafka_does_not_allow_is_refused(prefix: str) -> None:
    """Kafka allows 249 letters, digits, dots, hyphens and underscores: the error says so before a broker does."""
    with pytest.raises(ConfigError, match="--topic-prefix"):
        Topics(prefix)


def test_the_policies_are_those_that_the_guarantees_need() -> None:
    """The broker's time orders `metrics`, no sum is compacted away within a week of outage, the rest is kept long."""
    of = policies(Topics())
    assert of["metrics"]["message.timestamp.type"] == "LogAppendTime"
    assert of["metrics-agg"]["cleanup.policy"] == of["metrics-table"]["cleanup.policy"] == "compact"
    assert int(of["metrics-agg"]["min.compaction.lag.ms"]) >= 7 * DAY_MS
    assert {of[name]["cleanup.policy"] for name in of.keys() - {"metrics-agg", "metrics-table"}} == {"delete"}


def test_the_page_states_every_topic_and_policy() -> None:
    """docs/topics.md has each topic's name and each of its settings, as the code sets them."""
    page = PAGE.read_text(encoding="utf-8")
    for name, config in policies(Topics()).items():
        section = page.split(f"\n## `{name}`\n")[1].split("\n## ")[0]
        for option, value in config.items():
            assert f"`{option}={value}`" in section
