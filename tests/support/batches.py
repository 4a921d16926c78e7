"""The batches in which a table reads a topic."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

from support.schedules import BEGIN_MS, TopicRecord

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from support.programs import Played

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Batch(NamedTuple):
    """A batch reads up to the offsets in `ends`, by partition. If it has `all_read`, every shard runs."""

    ends: dict[int, int]
    all_read: bool


def divide(records: Sequence[TopicRecord], sizes: list[int], chance: random.Random | None = None) -> Iterator[Batch]:
    """Yield batches of these sizes, repeatedly, in the order of appending.

    With probability `chance`, a batch reads only one partition; later batches then have older records of the others.
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
        yield Batch(dict(ends), all_read=False)


MODES = ("one batch", "live", "behind", "backlog", "any order")


def batches_of(played: Played, mode: str, chance: random.Random) -> list[Batch]:
    """Return the batches of a mode, live by the real times of the records or as a backlog."""
    last_ends = _ends(played, played.ends_ms)
    batches: list[Batch] = []
    if mode in ("live", "behind"):
        at = BEGIN_MS
        behind = {p: chance.choice([0, 1, 6, 30, 48]) * HOUR_MS * (mode == "behind") for p in last_ends}
        ends = dict.fromkeys(last_ends, 0)
        for one in played.appended:
            if one.real_ms <= at:
                continue
            at = one.real_ms + chance.choice([0, 500, 20_000, HOUR_MS, 20 * HOUR_MS])
            now = _ends(played, at)
            ends = {p: max(ends[p], _ends(played, at - behind[p])[p]) for p in last_ends}
            batches.append(Batch(ends, ends == now))
    elif mode == "backlog":
        number = chance.randint(2, 12)
        for part in range(1, number):
            ends = {p: end * part // number for p, end in last_ends.items()}
            batches.append(Batch(ends, all_read=False))
    elif mode == "any order":
        ends = dict.fromkeys(last_ends, 0)
        while ends != last_ends:
            p = chance.choice([p for p in last_ends if ends[p] < last_ends[p]])
            ends = ends | {p: min(last_ends[p], ends[p] + chance.randint(1, 20))}
            batches.append(Batch(ends, ends == last_ends))
    return [*batches, Batch(last_ends, all_read=True)]


def _ends(played: Played, at_ms: int) -> dict[int, int]:
    ends = dict.fromkeys(range(played.partitions), 0)
    for one in played.appended:
        if one.real_ms <= at_ms:
            ends[one.record.partition] += 1
    return ends
