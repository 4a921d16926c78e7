"""Batches and ranges of a backlog: complete, without overlaps, and of limited size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_aggregator.spark.catch_up.splits import BATCH_S, MAX_FACTOR, Range, batch_end, cut, fit, size

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topic_selection import Offsets

PLACES = st.tuples(st.sampled_from(["metrics", "more"]), st.integers(0, 5).map(str))


def _nested(flat: dict[tuple[str, str], int]) -> Offsets:
    found: Offsets = {}
    for (topic, p), offset in flat.items():
        found.setdefault(topic, {})[p] = offset
    return found


@st.composite
def _batches(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    """Return the start of a batch and the ends of the partitions. Some are new, some have no new records."""
    begins = draw(st.dictionaries(PLACES, st.integers(0, 1000)))
    lengths = draw(st.dictionaries(PLACES, st.integers(0, 1000)))
    return _nested(begins), _nested({at: begins.get(at, 0) + length for at, length in lengths.items()})


@given(_batches(), st.integers(1, 8))
def test_ranges_cover_the_batch_without_overlaps(batch: tuple[Offsets, Offsets], pieces: int) -> None:
    """In order, they go from the start of the batch to its end. None is empty."""
    start, end = batch
    reached: dict[tuple[str, str], int] = {}
    for one in cut(start, end, pieces):
        at = (one.topic, str(one.partition))
        assert one.first == reached.get(at, start.get(one.topic, {}).get(str(one.partition), 0))
        assert one.first < one.end
        reached[at] = one.end
    wanted = {(t, p): last for t, ps in end.items() for p, last in ps.items() if last > start.get(t, {}).get(p, 0)}
    assert reached == wanted


def test_a_long_partition_is_divided_for_all_tasks() -> None:
    """It is divided into equal ranges. A short partition is one range."""
    assert cut({"m": {"0": 10}}, {"m": {"0": 110, "1": 3}}, 2) == [
        Range("m", 0, 10, 60),
        Range("m", 0, 60, 110),
        Range("m", 1, 0, 3),
    ]


@given(_batches(), st.integers(1, 3000))
def test_a_batch_has_a_share_of_every_partition(batch: tuple[Offsets, Offsets], max_records: int) -> None:
    """It has a record of each partition with records, and not many more records than its limit."""
    start, ends = batch
    reached = batch_end(start, ends, max_records)
    assert {t: set(ps) for t, ps in reached.items()} == {t: set(ps) for t, ps in ends.items()}
    for topic, partitions in ends.items():
        for p, end in partitions.items():
            first = start.get(topic, {}).get(p, 0)
            assert first <= reached[topic][p] <= end
            assert reached[topic][p] > first or first == end
    assert size(start, reached) <= max_records + sum(len(partitions) for partitions in ends.values())
    assert batch_end(start, ends, None) == ends


@pytest.mark.parametrize(
    ("read", "seconds", "wanted"),
    [
        (1000, BATCH_S, 1000),
        (1000, BATCH_S / 2, 2000),
        (1000, BATCH_S * 2, 500),
        (1000, BATCH_S / 100, 1000 * MAX_FACTOR),
        (1000, BATCH_S * 100, 1000 // MAX_FACTOR),
        (1000, 0.0, 1000),
    ],
)
def test_the_size_of_a_batch_follows_the_speed_of_the_last_one(read: int, seconds: float, wanted: int) -> None:
    """It has an upper and a lower limit."""
    assert fit(1000, read, seconds) == wanted
