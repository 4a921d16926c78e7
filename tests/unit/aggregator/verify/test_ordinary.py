"""Ordinary snapshots are replayed by a shorter way than others, with the same result."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.malformed import BAD_METRICS, BAD_SKETCHES, ODD_METRICS
from support.replayed import Replayed, replay
from support.runs import move
from support.schedules import TopicRecord, play, schedules
from tallystream.metrics.sketch import Sketch
from tallystream_aggregator.verify import decode
from tallystream_aggregator.verify.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterable

BEGIN_MS = 1_700_000_000_000
LIFE = "01HF7YAT00" + "A" * 16
COUNTS = ("count", "start", "position")
NUMBERS = (*COUNTS, "sum", "value", "min", "max", "m1_rate", "p50")
ODD_NUMBERS = (0, -1, -0.5, 1.0, 2**63 - 1, 2**63, -(2**63), 10**30, 1e999, float("nan"), None, True, "1", [])
ODD_TEXTS = [text for text in (*BAD_METRICS, *ODD_METRICS) if text[0] == "{" and len(text) < 1_000]
SKETCHES = [json.loads(text) for text in BAD_SKETCHES] + [None]


def sketch_of(values: list[float]) -> dict[str, Any]:
    """Return a sketch as a reporter sends it."""
    sketch = Sketch()
    sketch.add(values)
    found: dict[str, Any] = msgspec.to_builtins(sketch.encode())
    return found


def metrics_of(round_: int) -> list[dict[str, Any]]:
    """Return a metric of each type, whose counts grow with the round."""
    values = [1.0 + 10.0**n for n in range(round_)]
    spread = {"count": round_, "sum": sum(values), "min": -1, "max": 10.0**round_, "sketch": sketch_of(values)}
    return [
        {"type": "counter", "name": "c", "tags": {"a": "1", "b": ""}, "count": round_},
        {"type": "float_counter", "name": "f", "sum": round_ / 3},
        {"type": "updown", "name": "u", "value": -round_},
        {"type": "gauge", "name": "g", "value": 0.5 * round_},
        {"type": "meter", "name": "m", "count": round_, "m1_rate": 0.1 * round_},
        {"type": "histogram", "name": "h", **spread},
        {"type": "timer", "name": "t", **spread, "m5_rate": 1, "p50": 2},
        {"type": "position", "name": "p", "start": 3, "position": 3 + round_},
    ]


def spoil(chance: random.Random, snapshot: dict[str, Any]) -> None:
    """Change something in a snapshot, so that it may not be an ordinary one."""
    metrics = snapshot["metrics"]
    metric, at = chance.choice(metrics), chance.randrange(len(metrics))
    kind = chance.randrange(9)
    if kind == 0:
        metric[chance.choice(NUMBERS)] = chance.choice(ODD_NUMBERS)
    elif kind == 1:
        metric.pop(chance.choice(sorted(metric)))
    elif kind == 2:
        metric["sketch"] = chance.choice(SKETCHES)
    elif kind == 3:
        metrics[at] = json.loads(chance.choice(ODD_TEXTS), strict=False)
    elif kind == 4 and at:
        metrics.pop(at)
    elif kind == 5:
        metrics.append(dict(metric))
    elif kind == 6:
        snapshot[chance.choice(sorted(snapshot.keys() - {"metrics"}))] = chance.choice([*ODD_NUMBERS, LIFE])
    elif kind == 7:
        snapshot["final"], snapshot["complete"] = True, chance.random() < 0.5
    else:
        metric["name"] = chance.choice(["c", "new", "", "x" * 600])


def snapshots(chance: random.Random, rounds: int) -> Iterable[TopicRecord]:
    """Yield the snapshots of a life. Some are spoilt, some come again, and some are in another partition."""
    for offset in range(rounds):
        snapshot = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": offset + 1, "ts": 0, "every_ms": 1000}
        snapshot |= {"final": False, "metrics": metrics_of(chance.choice([offset, offset, 0]) + 1)}
        if chance.random() < 0.4:
            snapshot["prev"] = BEGIN_MS + chance.choice([0, 0, -(10**8)])
        for _ in range(chance.choice([0, 0, 0, 1, 2])):
            spoil(chance, snapshot)
        value = json.dumps(snapshot, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
        partition = int(chance.random() < 0.1)
        yield TopicRecord(b"app-1", value, BEGIN_MS + 100 * offset, partition, 2 * offset)
        if chance.random() < 0.1:
            again = chance.choice([value, None])
            yield TopicRecord(b"app-1", again, BEGIN_MS + 100 * offset, partition, 2 * offset + 1)


def results(replayed: Replayed) -> Any:
    """Return everything that a replay says."""
    return replayed.sums, replayed.dead, replayed.events, replayed.table.stale


def compare(records: list[TopicRecord], **rules: Any) -> None:
    """Require that the results are the same if no snapshot is an ordinary one."""
    found = results(replay(records, **rules))
    with mock.patch.object(decode, "read_ordinary", return_value=None):
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
    with mock.patch.object(decode, "read", wraps=decode.read) as slow:
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
