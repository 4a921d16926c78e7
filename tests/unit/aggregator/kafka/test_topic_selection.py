"""The input of a table: a pattern of topics, or some partitions."""

from __future__ import annotations

import pytest

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics, policies


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


@pytest.mark.parametrize("name", ["m", "", "a b"])
def test_the_error_of_an_invalid_otlp_topic_is_one_sentence(name: str) -> None:
    """It is the topic of snapshots, or not a valid name of a topic."""
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
