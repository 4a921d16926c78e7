"""Divide a backlog into batches of a limited number of records, and a batch into ranges for its tasks. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topic_selection import Offsets


BATCH_S = 30.0
"""The target duration of a batch in catch-up, in seconds. A stop waits for the batch, and a crash repeats it."""

MAX_FACTOR = 5
"""The size of a batch is at most this many times the configured size, and at least the configured size divided by it.

The table must hold the records of a batch that compaction keeps.
"""


class Range(NamedTuple):
    """Offsets of one partition, from `first` up to but excluding `end`."""

    topic: str
    partition: int
    first: int
    end: int


def fit(max_records: int, taken: int, seconds: float) -> int:
    """Return how many records the next batch may have, after a batch of `taken` records that took `seconds`.

    `max_records` is the configured size. Each batch has a fixed cost, so larger batches process a backlog faster.
    """
    wanted = int(taken * BATCH_S / seconds) if seconds > 0 else max_records
    return min(max(wanted, max_records // MAX_FACTOR, 1), max_records * MAX_FACTOR)


def size(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets from `start` to `end`. A partition that `start` does not name begins at 0."""
    lengths = (last - start.get(topic, {}).get(p, 0) for topic, ps in end.items() for p, last in ps.items())
    return sum(length for length in lengths if length > 0)


def batch_end(start: Offsets, ends: Offsets, max_records: int | None) -> Offsets:
    """Return the end offsets of a batch that begins at `start` and has about `max_records`, None for all records.

    Each partition has its share of them. A partition that `start` does not name is new, and begins at 0. At least one
    record is taken from each partition that has any, so that none waits forever. So a batch may have a few more.
    """
    left = {(topic, p): end - start.get(topic, {}).get(p, 0) for topic, ps in ends.items() for p, end in ps.items()}
    total = sum(count for count in left.values() if count > 0)
    if max_records is None or total <= max_records:
        return ends
    reached: Offsets = {}
    for (topic, p), count in left.items():
        taken = max(1, count * max_records // total) if count > 0 else count
        reached.setdefault(topic, {})[p] = ends[topic][p] - count + taken
    return reached


def cut(start: Offsets, end: Offsets, pieces: int) -> list[Range]:
    """Return about `pieces` ranges of about the same length from `start` to `end`. No range is empty.

    Each partition with records has at least one range. The ranges of a partition are in order and have no gaps.
    """
    whole = [
        Range(topic, int(p), start.get(topic, {}).get(p, 0), last)
        for topic, partitions in end.items()
        for p, last in partitions.items()
    ]
    whole = [one for one in whole if one.first < one.end]
    total = sum(one.end - one.first for one in whole)
    ranges = []
    for one in whole:
        length = one.end - one.first
        parts = min(length, max(1, round(pieces * length / total)))
        bounds = [one.first + length * n // parts for n in range(parts + 1)]
        ranges += [one._replace(first=first, end=end) for first, end in pairwise(bounds)]
    return ranges
