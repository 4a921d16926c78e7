"""Lines for Carbon: one for each number, for any text."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from support.carbon import decode
from support.hostile_text import HOSTILE
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.graphite import (
    LONGEST_LINE,
    GraphiteSink,
    encode_path,
    encode_value,
    lines_of,
)

_texts = st.text(st.sampled_from(".;=~!^%/ a\n"), max_size=6) | st.sampled_from(HOSTILE) | st.text(max_size=8)
_keys = _texts | st.sampled_from(["name", "tag_name", "app"])


def test_a_line_is_path_tags_value_and_second() -> None:
    """The field is the last element of the path. Tags are sorted as by Graphite. Whole numbers have all digits."""
    point = Point(
        "orders.processed",
        {"topic": "a b", "app": "orders", "name": "n"},
        {"count": 2**63 - 1, "mean": 0.1, "up": True, "life": "L1"},
        1_700_000_000_999,
    )
    tags = ";app=orders;tag_name=n;topic=a%20b"
    assert list(lines_of(point, "live.")) == [
        f"live.orders.processed.count{tags} 9223372036854775807 1700000000\n",
        f"live.orders.processed.mean{tags} 0.1 1700000000\n",
        f"live.orders.processed.up{tags} 1 1700000000\n",
    ]


@settings(deadline=None)
@given(_texts, _keys, _texts, _texts)
def test_any_text_gives_one_line_of_three_words(name: str, key: str, value: str, field: str) -> None:
    """No text adds a line or a tag, makes an empty element of the path, or begins a value with a tilde."""
    (line,) = lines_of(Point(name, {key: value, "app": "a"}, {field: 1}, 5000))
    path, number, second = line.removesuffix("\n").split(" ")
    assert (number, second) == ("1", "5")
    assert re.fullmatch(r"[!-~]+", path)
    elements, *tags = path.split(";")
    assert all(elements.split("."))
    assert not elements.startswith("~")
    assert len(tags) == len({key, "app"})
    assert all(re.fullmatch(r"[^;!^=~]+=[^;~]+", tag) for tag in tags)


@settings(deadline=None)
@given(_texts)
def test_every_text_is_decoded_as_it_was_encoded(text: str) -> None:
    """So two texts never have the same code."""
    assert decode(encode_value(text)) == text
    assert decode(encode_path(text)) == text


def test_plain_names_are_not_changed() -> None:
    """They have dots between words, hyphens and underscores. Tags may have slashes and colons."""
    assert encode_path("orders.in-flight_2") == "orders.in-flight_2"
    assert encode_value("kafka:9092/topic.x") == "kafka:9092/topic.x"
    assert [encode_path(text) for text in ("", ".", "a..b", ".a.")] == ["%", "%2E", "a.%2Eb", "%2Ea%2E"]


def test_points_that_carbon_cannot_store_are_rejected() -> None:
    """A line is too long, a time is out of range, or a point has only text."""
    sink = GraphiteSink("127.0.0.1", 1)
    reasons: list[str] = []
    sink.refusals.listen = lambda _, reason: reasons.append(reason.partition("permanently: ")[2])
    sink.write(
        [
            Point("n", {"app": "x" * LONGEST_LINE}, {"count": 1}, 0),
            Point("n", {}, {"count": 1}, -1),
            Point("n", {}, {"count": 1}, 2**32 * 1000),
            Point("n", {}, {"text": "x"}, 0),
        ]
    )
    assert reasons == [
        "its line is longer than 16000 bytes",
        "['the time -1']",
        "['the time 4294967296000']",
        "it has no number",
    ]
