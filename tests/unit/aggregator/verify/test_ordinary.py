"""Snapshots that only replace the values of the one before are replayed by a shorter way, with the same result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.replayed import Replayed, replay
from support.runs import move
from support.schedules import play, play_steadily, schedules
from support.spoilt import spoilt
from tallystream import MetricRegistry
from tallystream.kafka.life import LifeHistory
from tallystream.testing import ManualClock
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.rules import Rules

if TYPE_CHECKING:
    import random

    from support.replayed import TopicRecord


def results(replayed: Replayed) -> Any:
    """Return everything that a replay says."""
    return replayed.sums, replayed.dead, replayed.events, replayed.table.noted.stale


def compare(records: list[TopicRecord], **rules: Any) -> None:
    """Require that the results are the same if no snapshot takes the shorter way."""
    found = results(replay(records, **rules))
    with mock.patch.object(Rules, "_replace", return_value=False):
        assert results(replay(records, **rules)) == found


@examples(150)
@given(schedules, st.randoms(use_true_random=False))
def test_spoilt_snapshots_have_the_same_result_by_either_way(schedule: list[int], chance: random.Random) -> None:
    """Numbers that fall, are missing, or are none; other metrics, fields, seqs, partitions and tombstones."""
    compare(list(spoilt(chance, play_steadily(schedule))), max_metrics=chance.choice([6, 10]))


@examples(60)
@given(schedules, st.randoms(use_true_random=False), st.booleans())
def test_schedules_have_the_same_result_by_either_way(schedule: list[int], chance: random.Random, moves: bool) -> None:
    """Everything that may be on the topic, also of instances that move to other partitions."""
    records = play(schedule)
    compare(move(records, chance) if moves else records, short_form_every_ms=5_000, max_metrics=8)


def test_only_the_first_snapshot_of_a_life_takes_the_longer_way() -> None:
    """A reporter's snapshots are ordinary, whatever their types and however their values grow."""
    clock = ManualClock()
    registry, lives, replayed = MetricRegistry("shop", clock=clock), LifeHistory("shop"), Replay()
    with mock.patch.object(Rules, "apply_snapshot", autospec=True, side_effect=Rules.apply_snapshot) as slow:
        for seq in range(1, 20):
            clock.advance(1)
            registry.counter("c").inc()
            registry.updown("u").dec()
            registry.gauge("g").set(seq / 2)
            registry.meter("m").mark()
            registry.histogram("h").update(10.0**seq)
            registry.timer("t").update(seq)
            registry.position("topic", 0).advance(0, seq)
            (pending,) = lives.prepare(registry.snapshot(), clock.wall_ms(), final=seq == 19)
            assert replayed.apply("metrics:0", clock.wall_ms(), b"app-1", pending.value) == []
            lives.acknowledged(pending, clock.wall_ms(), clock.wall_ms())
    assert slow.call_count == 1
    sums = replayed.sums()
    assert sums["shop", "counter", "c", ()]["count"] == 19
    _, bins = sums["shop", "histogram", "h", ()]["sketch"]
    assert sum(bins.values()) == 19
