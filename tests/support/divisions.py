"""The steps into which the records of a topic are divided: the end of each step, as partition → offset."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from support.schedules import TopicRecord

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

Ends = dict[int, int]


def divide(records: Sequence[TopicRecord], sizes: list[int], chance: random.Random | None = None) -> Iterator[Ends]:
    """Yield steps of these sizes, repeatedly, in the order of appending.

    With `chance`, half of the steps read only one partition; later ones then have older records of the others.
    """
    left, ends = list(records), dict.fromkeys(sorted({record.partition for record in records}), 0)
    for size in cycle(sizes):
        if not left:
            return
        mine = left
        if chance is not None and chance.random() < 0.5:
            mine = [record for record in left if record.partition == left[0].partition]
        for record in mine[:size]:
            ends[record.partition] = record.offset + 1
        left = [record for record in left if record.offset >= ends[record.partition]]
        yield dict(ends)
