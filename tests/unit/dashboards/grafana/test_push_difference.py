"""The differences that a push shows, and the digests by which it knows what changed. Pure."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_dashboards.grafana.push.difference import difference
from tallystream_dashboards.grafana.push.fingerprints import Mark, digest, message, parse, pushed

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab5ms", max_size=3),
    lambda one: (
        st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(["uid", "title", "a", "b"]), one, max_size=3)
    ),
    max_leaves=12,
)


def told(found: Any, wanted: Any) -> list[str]:
    return [str(change) for change in difference(found, wanted)]


@given(values)
def test_nothing_differs_from_itself(value: Any) -> None:
    """Neither the value, nor a copy of it."""
    assert difference(value, copy.deepcopy(value)) == []


@given(values, values)
def test_no_difference_is_no_difference_from_either_side(one: Any, other: Any) -> None:
    """What has to change one way has to change back the other way."""
    assert (difference(one, other) == []) is (difference(other, one) == [])


@given(values, values)
def test_the_same_digest_is_no_difference(one: Any, other: Any) -> None:
    """A resource that is taken for unchanged has nothing to show."""
    if digest(one) == digest(other):
        assert difference(one, other) == []


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3))
def test_what_grafana_fills_in_changes_no_digest(value: dict[str, Any]) -> None:
    """Empty fields may come and go, and fields may be in any order."""
    turned = dict(reversed(list(value.items())))
    assert digest(turned | {"x": None, "y": "", "z": [], "u": {}, "v": False}) == digest(value)


@pytest.mark.parametrize(
    ("found", "wanted", "lines"),
    [
        ({"a": 1}, {"a": 2, "b": "x"}, ["~ a: 1 → 2", '+ b: "x"']),
        ({"a": 0, "gone": [1]}, {"a": False}, ["~ a: 0 → false", "- gone: [1]"]),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "y"}}}, ['~ a.b.c: "x" → "y"']),
        ({"p": [1, 2]}, {"p": [1, 3, 4]}, ["~ p[1]: 2 → 3", "+ p[2]: 4"]),
        ({"for": "5m", "t": "1h30m"}, {"for": "300s", "t": "90m"}, []),
        ({"model": {"intervalMs": 1000, "a": 1}}, {"model": {"a": 1}}, []),
    ],
)
def test_differences_of_plain_values(found: Any, wanted: Any, lines: list[str]) -> None:
    """Paths with dots and brackets; durations are the same however they are written."""
    assert told(found, wanted) == lines


def test_items_are_told_apart_by_their_names() -> None:
    """One panel goes, one comes: the others are not compared with their neighbours, and a title is the path."""
    panels = [{"id": i, "title": title, "type": "stat"} for i, title in enumerate(("A", "B", "C"), 1)]
    wanted = [panels[0], {**panels[2], "type": "table"}, {"id": 9, "title": "D", "type": "stat"}]
    assert told({"panels": panels}, {"panels": wanted}) == [
        '~ panels[C].type: "stat" → "table"',
        '+ panels[D]: {"id": 9, "title": "D", "type": "stat"}',
        '- panels[B]: {"id": 2, "title": "B", "type": "stat"}',
    ]
    assert told({"panels": panels}, {"panels": panels[::-1]}) == ["~ panels: in another order"]


def test_long_texts_show_where_they_differ() -> None:
    """The line of a query that changed, not its first sixty characters."""
    query = 'from(bucket: "b") |> range(start: -5m) |> filter(fn: (r) => r._field == "count")'
    (line,) = told({"query": query}, {"query": query.replace("count", "sum")})
    assert line == '~ query: "…._field == \\"count\\")" → "…._field == \\"sum\\")"'
    assert len(told({}, {"query": query})[0]) < 80
    assert told({}, {"a": dict.fromkeys(map(str, range(40)), 1), "b": list(range(90))}) == [
        "+ a: 40 fields",
        "+ b: 90 items",
    ]


def test_marks_are_read_back() -> None:
    """A mark and a message are what they were; anything else is none."""
    mark = Mark("tallystream-folder", "0" * 16)
    assert parse(str(mark)) == mark
    assert [parse(text) for text in ("", None, "1 a b", "2 a b c d", 7)] == [None] * 5
    assert pushed(message("0123456789abcdef", "2026-11-21T18:00:00Z")) == "0123456789abcdef"
    assert [pushed(text) for text in ("", "Made it nicer", "tallystream dashboards push")] == [None] * 3
