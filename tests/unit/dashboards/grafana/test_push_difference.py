"""The differences that a push prints, and the fingerprints by which it recognizes changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_dashboards.grafana.push.difference import difference
from tallystream_dashboards.grafana.push.fingerprints import (
    Fingerprint,
    digest,
    digest_in_message,
    parse,
    version_message,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab5ms", max_size=3),
    lambda one: (
        st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(["uid", "title", "a", "b"]), one, max_size=3)
    ),
    max_leaves=12,
)


def changes(current: Any, desired: Any) -> list[str]:
    return [str(change) for change in difference(current, desired)]


@given(values)
def test_nothing_differs_from_itself(value: Any) -> None:
    """A value and its copy have no differences."""
    assert difference(value, copy.deepcopy(value)) == []


@given(values, values)
def test_differences_are_symmetric(one: Any, other: Any) -> None:
    """If there is a change in one direction, there is one in the other."""
    assert (difference(one, other) == []) is (difference(other, one) == [])


@given(values, values)
def test_equal_digests_have_no_differences(one: Any, other: Any) -> None:
    """A resource that counts as unchanged has no differences."""
    if digest(one) == digest(other):
        assert difference(one, other) == []


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3))
def test_empty_fields_and_their_order_do_not_change_a_digest(value: dict[str, Any]) -> None:
    """Grafana adds and removes empty fields, and reorders fields."""
    reversed_ = dict(reversed(list(value.items())))
    assert digest(reversed_ | {"x": None, "y": "", "z": [], "u": {}, "v": False}) == digest(value)


@pytest.mark.parametrize(
    ("current", "desired", "lines"),
    [
        ({"a": 1}, {"a": 2, "b": "x"}, ["~ a: 1 → 2", '+ b: "x"']),
        ({"a": 0, "gone": [1]}, {"a": False}, ["~ a: 0 → false", "- gone: [1]"]),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "y"}}}, ['~ a.b.c: "x" → "y"']),
        ({"p": [1, 2]}, {"p": [1, 3, 4]}, ["~ p[1]: 2 → 3", "+ p[2]: 4"]),
        ({"for": "5m", "t": "1h30m"}, {"for": "300s", "t": "90m"}, []),
        ({"model": {"intervalMs": 1000, "a": 1}}, {"model": {"a": 1}}, []),
    ],
)
def test_differences_of_plain_values(current: Any, desired: Any, lines: list[str]) -> None:
    """Paths have dots and brackets; durations in different units can be equal."""
    assert changes(current, desired) == lines


def test_items_of_a_list_are_matched_by_their_ids() -> None:
    """Added and removed panels do not shift the others; a panel's title is in the path."""
    panels = [{"id": i, "title": title, "type": "stat"} for i, title in enumerate(("A", "B", "C"), 1)]
    wanted = [panels[0], {**panels[2], "type": "table"}, {"id": 9, "title": "D", "type": "stat"}]
    assert changes({"panels": panels}, {"panels": wanted}) == [
        '~ panels[C].type: "stat" → "table"',
        '+ panels[D]: {"id": 9, "title": "D", "type": "stat"}',
        '- panels[B]: {"id": 2, "title": "B", "type": "stat"}',
    ]
    assert changes({"panels": panels}, {"panels": panels[::-1]}) == ["~ panels: in another order"]


def test_long_strings_are_shown_around_their_first_difference() -> None:
    """A changed query is cut before and after the difference; other long values are summarized."""
    query = 'from(bucket: "b") |> range(start: -5m) |> filter(fn: (r) => r._field == "count")'
    (line,) = changes({"query": query}, {"query": query.replace("count", "sum")})
    assert line == '~ query: "…._field == \\"count\\")" → "…._field == \\"sum\\")"'
    assert len(changes({}, {"query": query})[0]) < 80
    assert changes({}, {"a": dict.fromkeys(map(str, range(40)), 1), "b": list(range(90))}) == [
        "+ a: 40 fields",
        "+ b: 90 items",
    ]


def test_fingerprints_are_parsed() -> None:
    """A written fingerprint or message is parsed to the same; other texts have none."""
    fingerprint = Fingerprint("tallystream-folder", "0" * 16)
    assert parse(str(fingerprint)) == fingerprint
    assert [parse(text) for text in ("", None, "1 a b", "2 a b c d", 7)] == [None] * 5
    assert digest_in_message(version_message("0123456789abcdef", "2026-11-21T18:00:00Z")) == "0123456789abcdef"
    assert [digest_in_message(text) for text in ("", "Made it nicer", "tallystream dashboards push")] == [None] * 3
