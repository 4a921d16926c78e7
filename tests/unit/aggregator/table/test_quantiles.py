"""Rule 7: histograms and timers over all lives, and their quantiles from merged sketches."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.buckets import buckets, encoded
from support.fuzz import examples
from support.malformed import BAD_SKETCHES
from support.schedules import in_steps, step_sizes
from support.steps import BEGIN_MS, FIRST, SECOND, Topic, counter, run
from tallystream import record
from tallystream.metrics.sketch import MAX_BUCKETS, Sketch
from tallystream.ulid import new_ulid
from tallystream_aggregator import sums
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.arithmetic.sketches import MergedSketch
from tallystream_aggregator.table.arithmetic.values import since_baseline
from tallystream_aggregator.table.state import pack
from tallystream_aggregator.times import DAY_MS

SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
EMPTY = {"scale": 6}


def histogram(*values: float, kind: str = "histogram", **more: Any) -> dict[str, Any]:
    """Return a histogram of these values as a record has it. `more` overrides its fields."""
    sketch = Sketch()
    sketch.add(values)
    plain = {"type": kind, "name": "h", "count": len(values), "sum": sum(values)}
    plain["sketch"] = msgspec.to_builtins(sketch.encode())
    return plain | more


def quantiles(row: sums.Sum) -> dict[str, float | None]:
    """Return the quantiles that a sum has."""
    return {name: getattr(row, name) for name in SHARES if getattr(row, name) is not None}


def sketch(row: sums.Sum) -> record.Sketch | None:
    """Return the merged sketch that a sum has."""
    return msgspec.json.decode(row.sketch, type=record.Sketch) if row.sketch else None


def near(values: list[float]) -> dict[str, Any]:
    """Return the exact quantiles of these values. They are equal to estimates within 1.0831 %."""
    values = sorted(values)
    return {
        name: pytest.approx(values[int(share * (len(values) - 1))], rel=0.010831, abs=0)
        for name, share in SHARES.items()
    }


def test_rule_7_histograms_add_count_and_sum_and_keep_the_extremes() -> None:
    """Percentiles are never averaged: without sketches the sum has none."""
    one = {"type": "timer", "name": "t", "count": 2, "sum": 3.5, "min": 1, "max": 2.5, "p99": 2.5, "m1_rate": 1.0}
    two = {"type": "timer", "name": "t", "count": 1, "sum": 4, "min": 4, "max": 4, "p99": 4, "m1_rate": 2.0}
    row = Topic().snapshot(one).snapshot(two, life=SECOND).sum("t")
    assert (row.count, row.sum, row.min, row.max, row.m1_rate, row.p99) == (3, 7.5, 1, 4, 3.0, None)


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_rule_7_quantiles_are_those_of_all_lives_together(kind: str) -> None:
    """One instance has 99 fast calls, another a slow one: the median is fast, not the average of 1 and 100."""
    fast, slow = histogram(*[1.0] * 99, kind=kind), histogram(100.0, kind=kind)
    row = Topic().snapshot(fast).snapshot(slow, life=SECOND, key=b"app-2").sum("h")
    assert quantiles(row) == near([1.0] * 99 + [100.0])


def test_rule_7_a_life_without_a_sketch_removes_the_quantiles_and_no_count() -> None:
    """Quantiles of some values would look like those of all. They return when the sketches cover the count again."""
    topic = Topic().snapshot(histogram(1, 2, 3)).snapshot(histogram(9, sketch=None), life=SECOND)
    assert (topic.sum("h").count, quantiles(topic.sum("h"))) == (4, {})
    topic.snapshot(histogram(9), life=SECOND, seq=2)
    assert quantiles(topic.sum("h")) == near([1, 2, 3, 9])


@pytest.mark.parametrize("sketch", [None, EMPTY])
def test_rule_7_a_life_that_counted_nothing_needs_no_sketch(sketch: dict[str, Any] | None) -> None:
    """The other lives keep their quantiles, living and silent ones. If no life has a value, there are none."""
    topic = Topic().snapshot(histogram(sketch=sketch))
    assert (topic.sum("h").count, quantiles(topic.sum("h"))) == (0, {})
    topic.snapshot(histogram(5), life=SECOND, key=b"app-2", at=1000)
    assert quantiles(topic.sum("h")) == near([5])
    topic.append(b"clock", b'{"name":"tick","value":1}', at=DAY_MS)
    assert quantiles(topic.sum("h")) == near([5])


@pytest.mark.parametrize("sketch", BAD_SKETCHES, ids=lambda sketch: sketch[:20])
def test_rule_7_an_invalid_sketch_refuses_only_its_metric(sketch: str) -> None:
    """The metric is a dead letter, and its row keeps all of its values."""
    topic = (
        Topic()
        .snapshot(histogram(5))
        .snapshot(counter(1), histogram(5, 6, count=1, sum=11, sketch=json.loads(sketch)), seq=2)
    )
    assert topic.sum("n").count == 1
    assert (topic.sum("h").count, topic.sum("h").sum, quantiles(topic.sum("h"))) == (1, 5, near([5]))
    (letter,) = topic.changes.dead
    assert letter.metric is not None
    assert "sketch" in letter.reason or "$.sketch" in letter.reason


def test_rule_7_a_sketch_of_another_count_is_refused_with_both_numbers() -> None:
    """A new metric that is refused does not count for the limits."""
    topic = Topic().snapshot(histogram(1, 2, 3, count=4))
    assert topic.reasons() == ["the sketch has 3 values and the count is 4"]
    assert topic.table.state.metrics == {}


def test_rule_11_a_sketch_with_too_many_buckets_is_refused() -> None:
    """A sketch with all buckets of both signs and the largest counts is accepted, one more bucket is refused."""
    each = (2**63 - 1) // (2 * MAX_BUCKETS)
    full = buckets(-60_000, *[each] * MAX_BUCKETS)
    sketch = {"scale": 6, "positive": full, "negative": full}
    topic = Topic().snapshot(histogram(count=each * 2 * MAX_BUCKETS, sketch=sketch))
    assert topic.sum("h").count == each * 2 * MAX_BUCKETS
    beyond = {"scale": 6, "positive": [*buckets(0, 2), *buckets(MAX_BUCKETS, 3)]}
    topic.snapshot(histogram(count=5, sketch=beyond), life=SECOND)
    assert topic.reasons() == ["the sketch can't be read: it has 4097 buckets of one sign; the limit is 4096"]


def test_rule_7_sketches_of_other_scales_are_merged_and_removed_again() -> None:
    """Quantiles have the accuracy of the smallest scale, until a tombstone removes the life with that scale."""
    wide = record.Sketch(scale=0, positive=encoded(buckets(0, 5)))
    topic = Topic().snapshot(histogram(*[1.5] * 6))
    fine = quantiles(topic.sum("h"))
    topic.snapshot(histogram(count=5, sketch=msgspec.to_builtins(wide)), life=SECOND, key=b"app-2")
    assert list(quantiles(topic.sum("h")).values()) == pytest.approx([4 / 3] * 6)
    topic.append(b"app-2", None)
    assert quantiles(topic.sum("h")) == fine == near([1.5] * 6)


def test_rule_7_a_sum_has_the_merged_sketch_where_it_has_quantiles() -> None:
    """It is that of all values, at the smallest scale. Without a complete one there is none, nor beyond 64 bits."""
    topic = Topic().snapshot(histogram(1.5, -2.0)).snapshot(histogram(0.0, 300.0), life=SECOND, key=b"app-2")
    merged = Sketch()
    merged.add([1.5, -2.0, 0.0, 300.0])
    assert sketch(topic.sum("h")) == merged.encode()
    coarse = record.Sketch(scale=0, positive=encoded(buckets(0, 5)))
    topic.snapshot(histogram(count=5, sketch=msgspec.to_builtins(coarse)), life=SECOND, key=b"app-3")
    assert sketch(topic.sum("h")) == record.Sketch(
        scale=0,
        zero_count=1,
        positive=encoded(buckets(0, 6, 0, 0, 0, 0, 0, 0, 0, 1)),
        negative=encoded(buckets(0, 1)),
    )
    topic.snapshot(histogram(9, sketch=None), life=SECOND, key=b"app-4")
    assert sketch(topic.sum("h")) is None
    most = {"scale": 0, "positive": buckets(0, 2**63 - 1)}
    full = Topic().snapshot(histogram(count=2**63 - 1, sketch=most))
    assert sketch(full.sum("h")) is not None
    full.snapshot(histogram(1), life=SECOND, key=b"app-2")
    assert (full.sum("h").overflow, sketch(full.sum("h"))) == (True, None)


@pytest.mark.parametrize("sign", [1, -1])
def test_rule_7_a_sum_over_a_wider_range_than_a_sketch_may_have_has_a_smaller_scale(sign: int) -> None:
    """Two lives have 4,096 buckets each, far apart: their sum has 4,096 at a scale that is lower by one."""
    powers = (range(first, first + 4096) for first in (-8000, -3904))
    low, high = ([sign * 2.0 ** ((power + 0.5) / 32) for power in each] for each in powers)
    topic = Topic().snapshot(histogram(*low)).snapshot(histogram(*high), life=SECOND, key=b"app-2")
    merged = Sketch()
    merged.add([*low, *high])
    assert merged.scale == Sketch().scale - 1
    assert sketch(topic.sum("h")) == merged.encode()


def test_empty_buckets_take_no_space() -> None:
    """Lives whose values are thousands of buckets apart: their sum, their records and their state stay small."""
    topic = Topic()
    for life, first in ((FIRST, -3000), (SECOND, 3000)):
        lone = {"scale": 6, "positive": [*buckets(first, 1), *buckets(first + 4095, 1)]}
        topic.snapshot(histogram(count=2, sum=1, sketch=lone), life=life)
    assert quantiles(topic.sum("h"))
    row = topic.sum("h").value()
    assert row.count(b'"counts":"AQ=="') == 4
    assert len(row) < 700
    assert len(pack(topic.table.state)) < 1500


parts = st.lists(
    st.tuples(st.integers(-10, 20), st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30)),
    min_size=1,
    max_size=6,
)


@given(parts, parts, st.randoms(use_true_random=False))
def test_merging_is_commutative_and_associative_to_the_bit(
    kept: list[tuple[int, list[float]]], removed: list[tuple[int, list[float]]], chance: random.Random
) -> None:
    """Sketches of any scales, in any order and grouping, with others that are removed again: one result."""

    def life(scale: int, values: list[float]) -> tuple[int, record.Sketch]:
        one = Sketch(scale)
        one.add(values)
        return len(values), one.encode()

    def merge(of: list[tuple[int, record.Sketch]]) -> MergedSketch:
        """Merge in a random order and grouping."""
        if len(of) == 1:
            merged = MergedSketch()
            merged.replace(([], []), ([of[0][0]], [of[0][1]]))
            return merged
        chance.shuffle(of)
        at = chance.randrange(1, len(of))
        merged = merge(of[:at])
        merged.merge(merge(of[at:]))
        return merged

    def published(merged: MergedSketch) -> tuple[record.Sketch, list[float]] | None:
        total = merged.total()
        return None if total is None else (total.encode(), total.quantiles(list(SHARES.values())))

    lives, others = ([life(*one) for one in each] for each in (kept, removed))
    found = []
    for _ in range(2):
        merged = merge([*lives, *others])
        merged.merge(merge(others.copy()), subtract=True)
        found.append(published(merged))
    assert found[0] == found[1] == published(merge(lives))


magnitudes = st.floats(1e-8, 1e9)
numbers = magnitudes | magnitudes.map(lambda value: -value) | st.sampled_from([0.0, 1.0, 0.25])
waits = st.sampled_from([0, 100, 3_000, 20_000, 59_999, 60_000])
reports = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), waits, st.lists(numbers, max_size=12)), min_size=1, max_size=24
)


class Reported(NamedTuple):
    """A record, and all values that were observed until it was published."""

    record: Record
    values: list[float]


def publish(steps: list[tuple[int, bool, int, list[float]]]) -> list[Reported]:
    """Return the records of instances. Each step is a report: (instance, is a restart, time since the last, values).

    A new life begins after a restart and after a long silence.
    """
    now, everything = BEGIN_MS, list[float]()
    lives: dict[int, tuple[str, int, int, list[float]]] = {}
    published = []
    for offset, (number, restarts, wait, values) in enumerate(steps):
        now += wait
        life, seq, prev, known = lives.get(number, ("", 0, 0, []))
        if restarts or now >= prev + 60_000:
            life, seq, prev, known = new_ulid(now), 0, now, []
        known = known + values
        lives[number] = (life, seq + 1, now, known)
        everything = everything + values
        header = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": seq + 1, "prev": prev, "ts": now}
        body = header | {"every_ms": 1000, "final": False, "metrics": [histogram(*known)]}
        record = Record("metrics", 0, offset, now, b"app-%d" % number, json.dumps(body).encode())
        published.append(Reported(record, everything))
    end = Record("metrics", 0, len(steps), now + 60_000, b"clock", b'{"name":"tick","value":1}')
    return [*published, Reported(end, everything)]


@examples(150)
@given(reports, step_sizes)
def test_merged_quantiles_are_within_the_relative_error_of_the_exact_ones(
    steps: list[tuple[int, bool, int, list[float]]], sizes: list[int]
) -> None:
    """This holds after every step, with restarts, and at the end, when all lives are silent."""
    published = publish(steps)
    table = TableSettings()
    last: list[sums.Sum] = []
    for division in (in_steps(published, sizes), [published]):
        running, row = Table(State(), table), None
        for taken in division:
            done = run(running, [reported.record for reported in taken])
            assert done.dead == []
            rows = [total for total in done.totals if total.metric[1] == "h"]
            for row in rows:
                values = taken[-1].values
                assert row.count == len(values)
                found = {name: value for name in SHARES if (value := getattr(row, name)) is not None}
                assert found == (near(values) if values else {})
        assert row is not None
        assert row.lives == 0
        last.append(row)
    assert [getattr(last[0], name) for name in sums.VALUES] == [getattr(last[1], name) for name in sums.VALUES]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_counts_of_any_width_are_added_without_overflow(width: int) -> None:
    """Of a hundred sketches with the highest count of this width, in one bucket."""
    highest, merged = min(256**width - 1, 2**56), MergedSketch()
    runs = [record.Buckets(offset=0, width=width, counts=highest.to_bytes(width, "little"))]  # type: ignore[arg-type]
    one = record.Sketch(scale=0, positive=runs)
    merged.replace(([], []), ([highest] * 100, [one] * 100))
    total = merged.total()
    assert total is not None
    assert total.positive.counts.tolist() == [100 * highest]


def test_a_distribution_whose_later_points_have_no_sum_has_none() -> None:
    """Its baseline has one. The count goes on."""
    count, *others = since_baseline("histogram", (5, None, None, None), (2, 1.5, None, None))
    assert (count, others) == (3, [None, None, None])
