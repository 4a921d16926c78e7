"""Verify's replay: shards, ordinary snapshots, and sketches."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.buckets import buckets
from support.fuzz import examples
from support.replayed import replay
from support.runs import UNLIMITED, check
from support.schedules import play, play_steadily, schedules
from support.spoilt import spoilt
from support.steps import records_of, run
from support.tables import divide
from tallystream import MetricRegistry
from tallystream.kafka.life import LifeHistory
from tallystream.metrics.sketch import Sketch
from tallystream.testing import ManualClock
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.arithmetic.sketches import MergedSketch
from tallystream_aggregator.verify import sketches
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.rules import Rules
from tallystream_aggregator.verify.shard import _metric_size

BEGIN_MS, DAY_MS = 1_700_000_000_000, 86_400_000
MAX_INT64 = 2**63 - 1
LIFE = "01HF7YAT00" + "A" * 16
HEADER = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}


def counter(count: int, name: str = "n") -> dict[str, Any]:
    return {"type": "counter", "name": name, "count": count}


def add(replay: Replay, *metrics: Any, key: bytes = b"app-1", at: int = 0, **header: Any) -> list[str]:
    """Append a snapshot, `at` ms after the beginning, and return why what is refused. `header` overrides its fields."""
    return replay.apply("metrics:0", BEGIN_MS + at, key, json.dumps({**HEADER, **header, "metrics": metrics}).encode())


def sum_of(replay: Replay, name: str = "n") -> dict[str, Any]:
    """Return the sum of the metric `name`."""
    (fields,) = [fields for identity, fields in replay.sums().items() if identity[2] == name]
    return fields


def test_each_shard_has_room_of_its_own_also_after_a_split() -> None:
    """The third life has no room beside the others, and has when its shard has only one of them."""
    replay = Replay()
    replay.change(DAY_MS, 6_000, ())
    instances = [b"app-0", b"app-4", b"app-1"]  # of the shards 1, 0 and 1 of two
    found = [add(replay, key=key, app=key.decode()) for key in instances]
    assert found == [[], [], ["no room for a life: bytes per table"]]
    replay.split(2)
    again = [add(replay, key=key, app=key.decode(), seq=2) for key in [*instances, b"app-2"]]
    assert [bool(refused) for refused in again] == [False, False, False, True]


@pytest.mark.parametrize("spare", [-1, 0])
def test_a_record_may_be_as_large_as_the_limit(spare: int) -> None:
    """In every form. A byte more is refused."""
    values = [json.dumps({**HEADER, "metrics": [counter(1)]}), '{"name":"n","value":1}', '{"resourceMetrics":[]}']
    for topic, value in zip(("metrics", "metrics", "otlp"), values, strict=True):
        replay = Replay(Settings(max_record_bytes=len(value) + spare, otlp_topics=("otlp",)))
        refused = replay.apply(f"{topic}:0", BEGIN_MS, b"app-1", value.encode())
        assert refused == (["the record is too large"] if spare else [])


def test_metrics_beyond_the_limit_are_refused_after_a_snapshot_without_them() -> None:
    """Those up to the limit are the ones of the snapshot before."""
    replay = Replay(Settings(max_metrics=2))
    metrics = [counter(1, name) for name in "abc"]
    assert add(replay, *metrics[:2]) == []
    assert len(add(replay, *metrics, seq=2)) == 1


@pytest.mark.parametrize("more", [0, 1])
def test_the_names_and_tags_of_a_life_have_256_bytes_for_each_metric(more: int) -> None:
    """A byte more is refused, as by the table."""
    settings, texts = Settings(max_metrics=2), (254, 254 + more)
    metrics = [counter(1, name) | {"tags": {"t": "x" * size}} for name, size in zip("ab", texts, strict=True)]
    replay, table = Replay(settings), Table(State(), TableSettings(max_metrics=2))
    assert add(replay, *metrics) == ["too many bytes of metrics per life"] * more
    value = json.dumps({**HEADER, "metrics": metrics}).encode()
    assert len(run(table, [Record("metrics", 0, 0, BEGIN_MS, b"app-1", value)]).dead) == more


SKETCH = {"scale": 0, "positive": buckets(0, 2)}
REFUSED = {
    "counter": ({"count": 2}, {"count": 1}, "the count falls"),
    "histogram": ({"count": 2, "sum": 1.0, "sketch": SKETCH}, {"count": 3}, "the sketch has another number of values"),
    "meter": ({"count": 2}, {"count": 1}, "the count falls"),
    "gauge": ({"value": 2}, {"value": 10**400}, "int too large to convert to float"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_of_a_snapshot_is_refused_after_others_of_the_same_metrics(kind: str) -> None:
    """The other metrics of the snapshot count."""
    replay, (fields, refused, reason) = Replay(), REFUSED[kind]
    metric = {"type": kind, "name": "n", **fields}
    for seq in (1, 2):
        assert add(replay, counter(seq, "other"), metric, seq=seq) == []
    before = sum_of(replay)
    assert add(replay, counter(3, "other"), metric | refused, seq=3) == [reason]
    assert sum_of(replay, "other")["count"] == 3
    assert sum_of(replay).get("count") == before.get("count")


def test_forgotten_lives_are_kept_as_one() -> None:
    """Memory does not grow with them: each metric has one row of them. Counts, sums and sketches stay exact."""
    replay, times = Replay(), range(0, 20 * 8, 8)
    for at in times:
        values = {"count": 1, "sum": 0.1, "min": at, "max": at}
        sketch = {"scale": 6 - at % 3, "positive": buckets(at, 1)}
        gauge = {"type": "gauge", "name": "g", "value": 1}
        metrics = {"type": "histogram", "name": "h", **values, "sketch": sketch}, counter(2**62), gauge
        header: dict[str, Any] = {"life": f"01HF7YAT00{at:016}", "prev": BEGIN_MS + at * DAY_MS}
        assert add(replay, *metrics, key=b"app-%d" % at, at=at * DAY_MS, **header) == []
        wall_ms = BEGIN_MS + (at + 8) * DAY_MS
        replay.apply("metrics:0", wall_ms, b"tallystream-clock", b'{"v":1,"wall_ms":%d}' % wall_ms)
    found = sum_of(replay, "h")
    assert (found["count"], found["sum"], found["min"], found["max"]) == (20, math.fsum([0.1] * 20), 0, times[-1])
    assert sum(found["sketch"][1].values()) == found["retired"] == 20
    assert sum_of(replay) == {"count": MAX_INT64, "overflow": True, "lives": 0, "instances": 0, "retired": 20}
    assert sum_of(replay, "g") == {"number": 0, "lives": 0, "instances": 0, "retired": 0}
    (shard,) = replay._shards
    assert list(shard.room.uses.values()) == [1, 1, 0]
    assert shard.instances == {}
    assert shard.room._bytes[""] == sum(_metric_size(metric) for metric, uses in shard.room.uses.items() if uses)
    replay.split(2)
    assert sum(one.room._bytes[""] for one in replay._shards) == shard.room._bytes[""]


@pytest.mark.parametrize(("bound", "one_more"), [(MAX_INT64, 1), (-MAX_INT64 - 1, -1)])
def test_a_sum_is_exact_up_to_the_bound_of_64_bits_and_stays_there(bound: int, one_more: int) -> None:
    """Beyond it, the sum has `overflow`."""
    replay = Replay()
    for life, value in enumerate((bound, one_more)):
        assert add(replay, {"type": "updown", "name": "n", "value": value}, key=b"app-%d" % life) == []
        assert (sum_of(replay)["sum"], sum_of(replay).get("overflow", False)) == (bound, life == 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ['\\"', '"\\', "[]", '""', "]["], ids=repr)
def test_a_megabyte_of_hostile_text_is_refused_in_time_that_grows_with_its_size(text: str) -> None:
    """The text has open quotes, brackets, or both. In quadratic time each case would take more than an hour."""
    value = b"[" * 65 + b'"' + text.encode() * (1_000_000 // len(text))
    assert len(Replay().apply("metrics:0", BEGIN_MS, b"app-1", value)) == 1


@examples(120)
@given(schedules, st.sampled_from([50, 1_000]), st.randoms(use_true_random=False))
def test_the_table_equals_the_replay_of_spoilt_snapshots(schedule: list[int], size: int, chance: random.Random) -> None:
    """Numbers that fall, are missing, or are none; other metrics, fields, seqs, partitions and tombstones.

    So verify replaces all values of a snapshot at once only if that makes no difference.
    """
    records = list(spoilt(chance, play_steadily(schedule)))
    check(records, divide(records, [size]), UNLIMITED | {"max_metrics": chance.choice([6, 10])})


@examples(40)
@given(schedules, st.integers(0, 200_000))
def test_verify_counts_the_bytes_that_the_table_counts(schedule: list[int], size: int) -> None:
    """Also of lives that are forgotten, and when the table is full: so both refuse the same records."""
    rules: dict[str, Any] = {"max_table_bytes": 10_000 + size, "forget_after_ms": 50_000, "short_form_every_ms": 5_000}
    table, replayed = Table(State(), TableSettings(**rules)), replay([], **rules)
    for one in play(schedule):
        run(table, records_of([one]))
        replayed.add([one])
        (shard,) = replayed.table._shards
        counted = {app or None: used for app, used in shard.room._bytes.items() if used}
        assert counted == table._rows.size._used


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


floats = st.floats(allow_nan=False, allow_infinity=False)
near = st.floats(0.001, 1000.0)
values = st.lists(st.one_of(floats, near, st.just(0.0)), min_size=1, max_size=30)


@examples(150)
@example([[1e-300], [1e300]])
@example([[-1e-300], [-1e300]])
@given(st.lists(values, min_size=1, max_size=5))
def test_merged_sketches_have_the_same_buckets_and_quantiles(lives: list[list[float]]) -> None:
    """Whatever the values: of both signs, zeros, of different scales, over more buckets than a sketch may have."""
    merged, added = MergedSketch(), Counter[tuple[int, int, int]]()
    for life in lives:
        one = Sketch()
        one.add(life)
        merged.replace(([], []), ([len(life)], [one.encode()]))
        assert sketches.number_of(one.encode()) == len(life)
        added.update(sketches.bins_of(one.encode()))
    bins, total = sketches.merged(added), merged.total()
    assert total is not None
    assert sketches.bins_of(total.encode()) == bins
    for found, expected in zip(
        sketches.quantiles(bins).values(), total.quantiles(list(sketches.SHARES.values())), strict=True
    ):
        assert math.isclose(found or 0.0, expected or 0.0, rel_tol=1e-9)
