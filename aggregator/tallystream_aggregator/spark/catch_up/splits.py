"""How a backlog is cut: into batches of at most so many records, and a batch into ranges for its tasks. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topic_selection import Offsets


BATCH_S = 30.0
"""How long a batch of a backlog may take: a stop waits for it, and after a crash it is run again."""

MAX_FACTOR = 5
"""How much larger, or smaller, than it was told a batch is made for that: the table has to hold what is left of it."""


class Range(NamedTuple):
    """Offsets of one partition, from `first` up to, and without, `end`."""

    topic: str
    partition: int
    first: int
    end: int


def fit(most: int, taken: int, seconds: float) -> int:
    """Return how many records a batch should take after one that took `taken` records and `seconds`.

    What a batch costs beside its records, it costs once: the larger the batches, the sooner a backlog is done.
    """
    wanted = int(taken * BATCH_S / seconds) if seconds > 0 else most
    return min(max(wanted, most // MAX_FACTOR, 1), most * MAX_FACTOR)


def size(start: Offsets, end: Offsets) -> int:
    """Return how many offsets lie between."""
    lengths = (last - start.get(topic, {}).get(p, 0) for topic, ps in end.items() for p, last in ps.items())
    return sum(length for length in lengths if length > 0)


def batch_end(start: Offsets, ends: Offsets, most: int | None) -> Offsets:
    """Return where a batch ends that begins at `start`: each partition has its share of `most` records, None for all.

    A partition that `start` does not name is new, and begins at 0. One that has records left gets one at least, so that
    none waits forever; so a batch may have a few more than `most`.
    """
    left = {(topic, p): end - start.get(topic, {}).get(p, 0) for topic, ps in ends.items() for p, end in ps.items()}
    total = sum(count for count in left.values() if count > 0)
    if most is None or total <= most:
        return ends
    reached: Offsets = {}
    for (topic, p), count in left.items():
        taken = max(1, count * most // total) if count > 0 else count
        reached.setdefault(topic, {})[p] = ends[topic][p] - count + taken
    return reached


def cut(start: Offsets, end: Offsets, pieces: int) -> list[Range]:
    """Return the ranges from `start` to `end`, about `pieces` of them, all about as long, none empty.

    What lies in one partition is one range at least; in their order the ranges of a partition are without a gap.
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
