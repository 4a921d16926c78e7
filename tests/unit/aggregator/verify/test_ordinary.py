"""Snapshots that only replace the values of the one before are replayed by a shorter way, with the same result."""

from __future__ import annotations

import json
import random
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.replayed import Replayed, replay
from support.runs import move
from support.schedules import TopicRecord, play, schedules
from support.spoilt import BEGIN_MS, LIFE, metrics_of, snapshots
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.rules import Rules


def results(replayed: Replayed) -> Any:
    """Return everything that a replay says."""
    return replayed.sums, replayed.dead, replayed.events, replayed.table.noted.stale


def compare(records: list[TopicRecord], **rules: Any) -> None:
    """Require that the results are the same if no snapshot takes the shorter way."""
    found = results(replay(records, **rules))
    with mock.patch.object(Rules, "_replace", return_value=False):
        assert results(replay(records, **rules)) == found


@examples(300)
@given(st.integers(0, 2**32))
def test_spoilt_snapshots_have_the_same_result_by_either_way(seed: int) -> None:
    """Numbers that fall, are missing, or are none; other metrics, fields, seqs, partitions and tombstones."""
    chance = random.Random(seed)
    compare(list(snapshots(chance, chance.randrange(2, 8))), max_metrics=chance.choice([6, 10]))


@examples(60)
@given(schedules, st.randoms(use_true_random=False), st.booleans())
def test_schedules_have_the_same_result_by_either_way(schedule: list[int], chance: random.Random, moves: bool) -> None:
    """Everything that may be on the topic, also of instances that move to other partitions."""
    records = play(schedule)
    compare(move(records, chance) if moves else records, short_form_every_ms=5_000, max_metrics=8)


def test_only_the_first_snapshot_of_a_life_takes_the_longer_way() -> None:
    """A reporter's snapshots are ordinary, whatever their types and however their values grow."""
    replayed = Replay()
    with mock.patch.object(Rules, "apply_snapshot", autospec=True, side_effect=Rules.apply_snapshot) as slow:
        for seq in range(1, 20):
            snapshot = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000}
            value = json.dumps(snapshot | {"final": seq == 19, "metrics": metrics_of(seq)}).encode()
            assert replayed.apply("metrics:0", BEGIN_MS, b"app-1", value) == []
    assert slow.call_count == 1
    sums = replayed.sums()
    assert sums["shop", "counter", "c", (("a", "1"), ("b", ""))]["count"] == 19
    _, bins = sums["shop", "histogram", "h", ()]["sketch"]
    assert sum(bins.values()) == 19
