"""Downsampled history: which rounds are kept, and what is read at the times between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.lag import Rounds, group, round_of
from tallystream_dashboards.lag.collector.recorder import Downsampler
from tallystream_dashboards.lag.reader import read_group, read_groups
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.storage import ENDS, GROUPS, LAG, ROUNDS

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.sqlite.sink import LocalStore

T0 = 1_700_000_100_000
"""The first round, epoch ms: the beginning of a slot of five minutes."""
RULES = Rules(window_s=100)


def test_a_gone_group_is_the_same_after_downsampling(store: LocalStore, reader: LocalStore) -> None:
    """The point of a group that is gone is in each round that downsampling keeps."""
    rounds, other = Rounds(RULES), group("other", (1, 1))
    for second in range(0, 1201, 10):
        groups = (other, group("g", (1, 4))) if second < 400 else (other,)
        store.write(rounds.points(round_of(*groups), T0 + second * 1000))
    now_ms = T0 + 1_200_000
    (before,) = [one for one in read_groups(reader, at_ms=now_ms) if one.gone]
    Downsampler(store, reader, full_ms=1, clock=lambda: now_ms + 300_000).run()
    (after,) = [one for one in read_groups(reader, at_ms=now_ms) if one.gone]
    assert after == before
    assert (after.seen_ms, after.since_ms) == (T0 + 390_000, T0 + 390_000)
    (points,) = reader.read(GROUPS, ["gone"], start_ms=T0 + 400_000, end_ms=now_ms + 1, tags={"group": "g"})
    assert points.times_ms == [T0 + 600_000, T0 + 900_000, T0 + 1_200_000]


def test_downsampling_keeps_the_first_round_of_each_slot(store: LocalStore, reader: LocalStore) -> None:
    """Of old history one complete round in five minutes is kept. Newer history is kept completely."""
    rounds = Rounds(RULES)
    for second in range(0, 1201, 10):
        groups = round_of(group("busy", (second, second * 2)), group("idle", (7, 7), topic="quiet"))
        store.write(rounds.points(groups, T0 + second * 1000))
    now_ms = T0 + 1_200_000
    Downsampler(store, reader, full_ms=600_000, clock=lambda: now_ms).run()
    for measurement, field, tags in (
        (LAG, "end", {"group": "idle"}),
        (LAG, "end", {"group": "busy"}),
        (GROUPS, "lag", {"group": "busy"}),
        (ROUNDS, "groups", {}),
        (ENDS, "end", {"topic": "quiet"}),
    ):
        (one,) = reader.read(measurement, [field], start_ms=T0, end_ms=now_ms + 1, tags=tags)
        old = [ts for ts in one.times_ms if ts < T0 + 600_000]
        assert old == [T0, T0 + 300_000], (measurement, tags)
    (busy,) = [one for one in read_groups(reader, at_ms=T0 + 500_000) if one.group == "busy"]
    assert busy.lag == 300
    detailed = read_group(reader, "busy", at_ms=T0 + 500_000)
    assert detailed is not None
    assert [one.lag for one in detailed.partitions] == [300]
    full = len(reader.read(ROUNDS, ["groups"], start_ms=T0 + 600_000, end_ms=now_ms + 1)[0].times_ms)
    assert full == 61


@pytest.mark.parametrize("second", [305, 395, 599, 690])
def test_downsampled_history_has_all_partitions(store: LocalStore, reader: LocalStore, second: int) -> None:
    """At a time without a point, every partition has its state of the round that was kept."""
    rounds = Rounds(RULES)
    for at in range(0, 901, 20):
        groups = round_of(group("g", (1, 9), (2, 9 + at)), group("idle", (7, 7), topic="quiet"))
        store.write(rounds.points(groups, T0 + at * 1000))
    Downsampler(store, reader, full_ms=1, clock=lambda: T0 + 1_200_000).run()
    detailed = read_group(reader, "g", at_ms=T0 + second * 1000)
    assert detailed is not None
    assert [one.lag for one in detailed.partitions] == [607 if second >= 600 else 307, 8]
    assert [one.evaluation.status for one in detailed.partitions] == [Status.STALL] * 2
    assert all("records wait" in one.evaluation.reason for one in detailed.partitions)
