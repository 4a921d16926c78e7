"""The steps into which the records of a topic are divided: the end of each step, as partition → offset."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from support.schedules import BEGIN_MS, TopicRecord

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from support.programs import Played

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


WAYS = ("one step", "live", "behind", "backlog", "any order")


def divided(played: Played, way: str, chance: random.Random) -> list[Ends]:
    """Return the steps by the real times of the records, live or behind, or those of a backlog."""
    last_ends = _ends(played, played.ends_ms)
    steps: list[Ends] = []
    if way in ("live", "behind"):
        at = BEGIN_MS
        behind = {p: chance.choice([0, 1, 6, 30, 48]) * HOUR_MS * (way == "behind") for p in last_ends}
        ends = dict.fromkeys(last_ends, 0)
        for one in played.appended:
            if one.real_ms <= at:
                continue
            at = one.real_ms + chance.choice([0, 500, 20_000, HOUR_MS, 20 * HOUR_MS])
            ends = {p: max(ends[p], _ends(played, at - behind[p])[p]) for p in last_ends}
            steps.append(ends)
    elif way == "backlog":
        number = chance.randint(2, 12)
        steps = [{p: end * part // number for p, end in last_ends.items()} for part in range(1, number)]
    elif way == "any order":
        ends = dict.fromkeys(last_ends, 0)
        while ends != last_ends:
            p = chance.choice([p for p in last_ends if ends[p] < last_ends[p]])
            ends = ends | {p: min(last_ends[p], ends[p] + chance.randint(1, 20))}
            steps.append(ends)
    return [*steps, last_ends]


def _ends(played: Played, at_ms: int) -> Ends:
    ends = dict.fromkeys(range(played.partitions), 0)
    for one in played.appended:
        if one.real_ms <= at_ms:
            ends[one.record.partition] += 1
    return ends
