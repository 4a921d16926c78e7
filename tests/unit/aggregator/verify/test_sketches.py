"""The second reader of sketches against the reporter's own: decoded, merged and asked, they say the same."""

from __future__ import annotations

import base64
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystream.aggregator.verify import sketches
from tallystream.reporter.sketch import Sketch

floats = st.floats(allow_nan=False, allow_infinity=False)
near = st.floats(0.001, 1000.0)
values = st.lists(st.one_of(floats, near, st.just(0.0)), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.lists(values, min_size=1, max_size=5))
def test_merged_sketches_have_the_same_quantiles(lives: list[list[float]]) -> None:
    """Whatever the values: of both signs, zeros, further apart than a sketch has bins."""
    merged, bins = Sketch(), {}
    for life in lives:
        one = Sketch()
        one.add(life)
        merged.merge(one)
        sketches.add(bins, sketches.decode(one.encode()))
    assert sum(bins.values()) == sum(map(len, lives))
    wanted = merged.quantiles(list(sketches.SHARES.values()))
    for found, expected in zip(sketches.quantiles(bins).values(), wanted, strict=True):
        assert math.isclose(found, expected, rel_tol=1e-9)


@settings(max_examples=150, deadline=None)
@given(values, st.data())
def test_a_damaged_sketch_is_read_by_both_or_by_none(life: list[float], data: st.DataObject) -> None:
    """A character that is another, or cut off: what one refuses the other refuses, and what both read is the same."""
    one = Sketch()
    one.add(life)
    text = one.encode()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.sampled_from(["", "A", "B", "/", "=", "ö", text[at:-4]])) + text[at + 1 :]
    assert read(damaged) == read_by_the_reporter(damaged)


@pytest.mark.parametrize("length", [1, 9, 10, 11, 30_000])
def test_a_number_of_any_length_is_read_by_both_or_by_none(length: int) -> None:
    """Ten bytes hold 64 bits, with leading zeros too; a longer number is refused where it becomes too long."""
    zero = b"\x80" * (length - 1) + b"\0"
    text = base64.b64encode(b"\1" + zero + b"\1\2\5\0").decode()
    assert read(text) == read_by_the_reporter(text) == ({(1, 1): 5} if length <= 10 else None)


def read(text: str) -> sketches.Bins | None:
    """Return the bins that verify reads, None where it refuses the text."""
    try:
        return sketches.decode(text)
    except ValueError:
        return None


def read_by_the_reporter(text: str) -> sketches.Bins | None:
    """Return the bins that the reporter's own reader finds, None where it refuses the text."""
    try:
        one = Sketch.decode(text)
    except ValueError:
        return None
    bins = {(0, 0): one.zeros} if one.zeros else {}
    bins |= {(1, index): count for index, count in one.positive.items()}
    return bins | {(-1, index): count for index, count in one.negative.items()}
