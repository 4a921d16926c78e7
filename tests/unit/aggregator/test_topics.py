"""The topics' names and policies, and that their page names the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.topics import DAY_MS, Topics, policies, require_partitions

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


def admin(**partitions: int) -> Any:
    """Return an admin client of a broker whose topics have so many partitions, one where none is given."""
    names = ("agg", "table", "events", "ledger", "dead")
    found = {
        getattr(Topics("t-"), name): SimpleNamespace(partitions=dict.fromkeys(range(partitions.get(name, 1))))
        for name in names
    }
    return SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics=found))


def test_a_table_needs_a_partition_for_each_shard() -> None:
    """More are good: they are added before the table is cut into more shards. Fewer are refused with the remedy."""
    for partitions in (4, 8):
        require_partitions(admin(table=partitions), Topics("t-"), shards=4)
    with pytest.raises(ConfigError, match=r"t-metrics-table.*3.*4 shards.*--topic t-metrics-table --partitions 4"):
        require_partitions(admin(table=3), Topics("t-"), shards=4)


@pytest.mark.parametrize("name", ["agg", "events", "ledger", "dead"])
def test_the_other_topics_have_one_partition(name: str) -> None:
    """What is read of them is partition 0: with more, some of it would be read by nobody."""
    with pytest.raises(ConfigError, match=rf"topic t-metrics-{name}.*2.*must have one.*delete the topic"):
        require_partitions(admin(**{name: 2}), Topics("t-"), shards=1)


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
