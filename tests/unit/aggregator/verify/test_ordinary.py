"""Snapshots that only replace the values of the one before are replayed by a shorter way, with the same result."""

from __future__ import annotations

import json
import random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.replayed import Replayed, replay
from support.runs import move
from support.schedules import TopicRecord, play, schedules
from support.spoilt import BEGIN_MS, LIFE, metrics_of, sketch_of, snapshots
from tallystream_aggregator.verify.replay import Replay


def results(replayed: Replayed) -> Any:
    """Return everything that a replay says."""
    return replayed.sums, replayed.dead, replayed.events, replayed.table.stale


def compare(records: list[TopicRecord], **rules: Any) -> None:
    """Require that the results are the same if no snapshot takes the shorter way."""
    found = results(replay(records, **rules))
    with mock.patch.object(Replay, "_replace", return_value=False):
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
    with mock.patch.object(Replay, "_snapshot", autospec=True, side_effect=Replay._snapshot) as slow:
        for seq in range(1, 20):
            snapshot = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000}
            value = json.dumps(snapshot | {"final": seq == 19, "metrics": metrics_of(seq)}).encode()
            assert replayed.apply("metrics:0", BEGIN_MS, b"app-1", value) == []
    assert slow.call_count == 1
    sums = replayed.sums()
    assert sums["shop", "counter", "c", (("a", "1"), ("b", ""))]["count"] == 19
    _, bins = sums["shop", "histogram", "h", ()]["sketch"]
    assert sum(bins.values()) == 19


@pytest.mark.parametrize("field", ["tags", "sketch"])
@pytest.mark.parametrize("depth", [50, 500, 990, 5_000, 100_000])
def test_what_is_nested_deep_stops_no_replay(field: str, depth: int) -> None:
    """The first snapshot is valid. The metric of the second one is refused, or the whole record."""
    replayed = Replay()
    metric = {"type": "histogram", "name": "h", "tags": {"a": "1"}, "count": 1, "sketch": sketch_of([2.0])}
    snapshot = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
    assert replayed.apply("metrics:0", BEGIN_MS, b"app-1", json.dumps(snapshot | {"metrics": [metric]}).encode()) == []
    deep = json.dumps(snapshot | {"seq": 2, "metrics": [metric | {field: "@"}]})
    value = deep.replace('"@"', "[" * depth + "]" * depth).encode()
    assert len(replayed.apply("metrics:0", BEGIN_MS, b"app-1", value)) == 1


FOREIGN = [
    ("counter", {"count": 1}, {"sketch": 5}),
    ("counter", {"count": 1}, {"sketch": "deep"}),
    ("gauge", {"value": 1}, {"count": 5}),
    ("float_counter", {"sum": 1}, {"count": 5}),
    ("position", {"start": 1, "position": 1}, {"sketch": 5}),
    ("histogram", {"count": 0, "sum": 0}, {"sketch": {"scale": 5, "other": "deep"}}),
]


@pytest.mark.parametrize(("kind", "own", "foreign"), FOREIGN)
def test_fields_of_other_types_change_nothing(kind: str, own: dict[str, Any], foreign: dict[str, Any]) -> None:
    """A snapshot has them, a later one does not; then the life is forgotten. They may make the whole record invalid."""
    metric = {"type": kind, "name": "x"} | own
    snapshot = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "ts": 0, "every_ms": 1000, "final": False}
    listed = [metric, metric | foreign, metric, metric | foreign]
    texts = [json.dumps(snapshot | {"seq": at, "metrics": [one]}) for at, one in enumerate(listed, 1)]
    values = [text.replace('"deep"', "[" * 70 + "]" * 70).encode() for text in texts]
    records = [TopicRecord(b"app-1", value, BEGIN_MS + at, 0, at) for at, value in enumerate(values)]
    wall_ms = BEGIN_MS + 8 * 86_400_000
    records.append(TopicRecord(b"tallystream-clock", b'{"v":1,"wall_ms":%d}' % wall_ms, wall_ms, 0, 9))
    compare(records)
