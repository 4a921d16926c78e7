"""The topics of a system, and those that it reads."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics, create_topics, policies, require_partitions
from tallystream_aggregator.times import DAY_MS

PAGE = Path(__file__).parents[4] / "docs" / "record.md"


def test_every_topic_has_the_prefix() -> None:
    """So several systems can share a broker."""
    topics = Topics("test-1.")
    assert topics.agg == "test-1.metrics-agg"
    assert set(policies(topics)) == {f"test-1.{name}" for name in policies(Topics())}


@pytest.mark.parametrize("prefix", ["a b", "ä", "x" * 240, "a/b"])
def test_a_prefix_that_kafka_does_not_allow_is_rejected(prefix: str) -> None:
    """The error names the option, before a broker rejects a topic."""
    with pytest.raises(ConfigError, match="--topic-prefix"):
        Topics(prefix)


def admin(**partitions: int) -> Any:
    """Return an admin client of a broker whose topics have these numbers of partitions, by default one."""
    names = ("agg", "table", "events", "ledger", "dead", "shards")
    found = {
        getattr(Topics("t-"), name): SimpleNamespace(partitions=dict.fromkeys(range(partitions.get(name, 1))))
        for name in names
    }
    return SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics=found))


def test_a_table_needs_a_partition_for_each_shard() -> None:
    """More are accepted: they are added before a rebuild with more shards. Fewer are rejected with a remedy."""
    for partitions in (4, 8):
        require_partitions(admin(table=partitions, shards=5), Topics("t-"), shards=4)
    with pytest.raises(ConfigError, match=r"t-metrics-table.*3.*4 shards.*--topic t-metrics-table --partitions 4"):
        require_partitions(admin(table=3), Topics("t-"), shards=4)


def test_the_partial_sums_need_one_more_for_the_combiner() -> None:
    """A topic that is missing is created later. A table of one shard has no partial sums, whatever the topic has."""
    require_partitions(admin(table=2, shards=3), Topics("t-"), shards=2)
    require_partitions(admin(shards=0), Topics("t-"), shards=1)
    with pytest.raises(ConfigError, match=r"t-metrics-shards.*2.*--topic t-metrics-shards --partitions 3"):
        require_partitions(admin(table=2, shards=2), Topics("t-"), shards=2)


def test_topics_are_created_with_the_replication_of_the_broker() -> None:
    """A fixed factor of 1 would lose data on a cluster whose `default.replication.factor` is 3."""
    known: dict[str, Any] = {}
    created: list[Any] = []

    def create(topics: list[Any], **_: object) -> dict[str, Any]:
        created.extend(topics)
        known.update({topic.topic: SimpleNamespace(partitions={0: None}) for topic in topics})
        return {topic.topic: SimpleNamespace(result=lambda: None) for topic in topics}

    broker: Any = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics=known), create_topics=create)
    assert set(create_topics(broker, Topics())) == set(policies(Topics())) - {"metrics-shards"}
    assert create_topics(broker, Topics(), shards=4, only=["metrics-shards"]) == ["metrics-shards"]
    assert {topic.topic: topic.num_partitions for topic in created if topic.num_partitions > 1} == {"metrics-shards": 5}
    assert {topic.replication_factor for topic in created} == {-1}


@pytest.mark.parametrize("name", ["agg", "events", "ledger", "dead"])
def test_the_other_topics_have_one_partition(name: str) -> None:
    """Readers read only partition 0."""
    with pytest.raises(ConfigError, match=rf"topic t-metrics-{name}.*2.*must have one.*delete the topic"):
        require_partitions(admin(**{name: 2}), Topics("t-"), shards=1)


def test_deletions_outlast_a_reader_of_the_rows() -> None:
    """A table that is made again would count a forgotten life twice if it read its row, and then no deletion."""
    of = policies(Topics())
    assert [int(of[name]["delete.retention.ms"]) for name in ("metrics-table", "metrics-shards")] == [DAY_MS] * 2


def test_the_configuration_has_what_the_guarantees_need() -> None:
    """`metrics` has append times, and compaction keeps every sum for a week, so that the shipper may be unavailable."""
    of = policies(Topics())
    assert of["metrics"]["message.timestamp.type"] == "LogAppendTime"
    compacted = {"metrics-agg", "metrics-table", "metrics-shards"}
    assert {of[name]["cleanup.policy"] for name in compacted} == {"compact"}
    assert int(of["metrics-agg"]["min.compaction.lag.ms"]) >= 7 * DAY_MS
    assert {of[name]["cleanup.policy"] for name in of.keys() - compacted} == {"delete"}


def test_the_documentation_has_the_configuration_of_every_topic() -> None:
    """docs/record.md has each option with its value."""
    page = PAGE.read_text(encoding="utf-8")
    for name, config in policies(Topics()).items():
        (row,) = re.findall(rf"^\|[^|\n]*`{name}`[^|\n]*\|(.*=.*)\|$", page, re.MULTILINE)
        for option, value in config.items():
            assert f"`{option}={value}`" in row


@pytest.mark.parametrize("pattern", [".*", "metrics.*", "metrics-.*", "metrics-agg", "metrics-agg|metrics", "(?i)M.*"])
@pytest.mark.parametrize("prefix", ["", "other-", "metrics-"])
def test_no_pattern_matches_the_output_of_an_aggregator(pattern: str, prefix: str) -> None:
    """Nor does it match Kafka's own topics, with any prefix."""
    topics = Topics(prefix)
    selection = Selection("metrics", pattern)
    outputs = policies(topics).keys() - {topics.metrics}
    assert [topic for topic in (*outputs, "__consumer_offsets") if selection.reads(topic, 0)] == []


def test_a_pattern_matches_complete_names() -> None:
    """All partitions of the topics that match are read."""
    selection = Selection("metrics", "metrics-(?:shop|mail)|metrics")
    assert [t for t in ("metrics", "metrics-shop", "metrics-shops", "a-metrics-mail") if selection.reads(t, 7)] == [
        "metrics",
        "metrics-shop",
    ]


def test_partitions_select_a_part_of_one_topic() -> None:
    """Other topics are not read."""
    selection = Selection("metrics", partitions=(0, 2))
    assert [p for p in range(4) if selection.reads("metrics", p)] == [0, 2]
    assert not selection.reads("metrics-shop", 0)


def test_otlp_topics_are_read_beside_metrics_and_beside_a_pattern() -> None:
    """They are complete names, in which no character is part of a pattern."""
    names = ("m", "m2", "o.1", "o-1", "x")
    for pattern, read in ((None, ["m", "o.1"]), ("m.*", ["m", "m2", "o.1"])):
        selection = Selection("m", pattern, otlp=("o.1",))
        assert [name for name in names if selection.reads(name, 7)] == read


@pytest.mark.parametrize("name", ["m", "", "a b", "x.metrics-dead", "__consumer_offsets"])
def test_the_error_of_an_invalid_otlp_topic_is_one_sentence(name: str) -> None:
    """It is the topic of snapshots, not a valid name of a topic, or an output: each dead letter would make another."""
    with pytest.raises(ConfigError, match=r"^--otlp-topic"):
        Selection("m", otlp=(name,))


def test_partitions_exclude_otlp_topics() -> None:
    """The numbers would be those of one topic or of all."""
    with pytest.raises(ConfigError, match=r"^--partitions: .*--otlp-topic"):
        Selection("m", partitions=(0,), otlp=("o",))


@pytest.mark.parametrize(
    ("option", "pattern", "partitions"),
    [("--topic-pattern", "metrics-(", None), ("--partitions", "metrics", (0,)), ("--partitions", None, (-1,))],
)
def test_the_error_of_an_invalid_selection_names_the_option(
    option: str, pattern: str | None, partitions: tuple[int, ...] | None
) -> None:
    """The pattern is invalid, both are given, or a number is negative."""
    with pytest.raises(ConfigError, match=f"^{option}: "):
        Selection("metrics", pattern, partitions)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection("other"), "topic other: it does not exist, or has no partition yet"),
        (Selection("metrics", partitions=(0, 2)), r"--partitions: \[2\] .*metrics does not have them"),
        (Selection("metrics", pattern="x.*"), "--topic-pattern: 'x.*' .*no topic matches"),
        (Selection("metrics", otlp=("spans",)), "--otlp-topic: 'spans' .*does not exist"),
    ],
)
def test_what_is_named_must_exist(selection: Selection, message: str) -> None:
    """A typo would read nothing, for ever. What is there is accepted."""
    Selection("metrics", otlp=("otlp",)).require_all({"metrics": [0, 1], "otlp": [0]})
    found = {topic: numbers for topic, numbers in {"metrics": [0, 1]}.items() if selection.reads(topic, 0)}
    with pytest.raises(TallystreamError, match=message):
        selection.require_all(found)
