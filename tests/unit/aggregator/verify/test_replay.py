"""The rules of the replay, each with its smallest example. The numbers are those of docs/table.md."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest

from support import record_reader
from support.buckets import buckets
from tallystream_aggregator.table.records.decode import read_value
from tallystream_aggregator.table.records.refusals import Refusal
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay

BEGIN_MS, DAY_MS, HOUR_MS = 1_700_000_000_000, 86_400_000, 3_600_000
MAX_INT64 = 2**63 - 1
FIRST, SECOND = "01HF7YAT00" + "A" * 16, "01HF7YAT00" + "B" * 16


class Records:
    """Appends records of one partition to a replay. `at` is the broker's clock, in ms after the beginning."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.replay = Replay(settings)
        self.refused: list[str] = []

    def append(self, key: bytes | None, value: bytes | None, at: int = 0, partition: int = 0) -> Records:
        """Append one record. The reasons of its refusals are in `refused`."""
        self.refused = self.replay.apply(f"metrics:{partition}", BEGIN_MS + at, key, value)
        return self

    def snapshot(self, *metrics: Any, at: int = 0, key: bytes = b"app-1", partition: int = 0, **header: Any) -> Records:
        """Append a snapshot of the first life. `header` overrides fields of the header."""
        plain = {"v": 1, "app": "shop", "life": FIRST, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
        return self.append(key, json.dumps({**plain, **header, "metrics": metrics}).encode(), at, partition)

    def short(self, value: int, at: int = 0) -> Records:
        """Append the short form of a counter."""
        return self.append(b"script", json.dumps({"name": "n", "value": value}).encode(), at)

    def clock(self, at: int, wall: int | None = None, partition: int = 0) -> Records:
        """Append a clock record, whose wall clock is `at` if `wall` is not given."""
        wall_ms = BEGIN_MS + (at if wall is None else wall)
        return self.append(b"tallystream-clock", b'{"v":1,"wall_ms":%d}' % wall_ms, at, partition)

    def sum(self, name: str = "n") -> dict[str, Any]:
        """Return the sum of the metric `name`."""
        (fields,) = [fields for identity, fields in self.replay.sums().items() if identity[2] == name]
        return fields


def counter(count: int, name: str = "n") -> dict[str, Any]:
    return {"type": "counter", "name": name, "count": count}


def gauge(value: Any, name: str = "g") -> dict[str, Any]:
    return {"type": "gauge", "name": name, "value": value}


def sketch(index: int, count: int, scale: int = 6) -> dict[str, Any]:
    return {"scale": scale, "positive": buckets(index, count)}


def histogram(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "histogram", "name": "h", "count": count, **more}


def test_the_highest_seq_counts_and_other_records_are_stale() -> None:
    """Rule 1: a duplicate and an older record change nothing."""
    records = Records().snapshot(counter(7), seq=2).snapshot(counter(7), seq=2).snapshot(counter(5), seq=1)
    assert records.sum()["count"] == 7
    assert records.replay.stale == 2


def test_lives_add_up() -> None:
    """Rule 2: two lives of one instance and one life of another are three lives of two instances."""
    records = Records().snapshot(counter(1)).snapshot(counter(2), life=SECOND).snapshot(counter(4), key=b"app-2")
    assert records.sum() == {"count": 7, "lives": 3, "instances": 2, "retired": 0}


def test_a_silent_life_stays_in_the_sum() -> None:
    """Rule 3: the counts of a silent life stay and its gauges leave the sum, also when it is forgotten."""
    records = Records().snapshot(counter(5), gauge(1)).clock(7 * DAY_MS - 1)
    assert records.sum() == {"count": 5, "lives": 0, "instances": 0, "retired": 0}
    assert records.sum("g") == {"number": 0, "lives": 0, "instances": 0, "retired": 0}
    assert records.clock(7 * DAY_MS).sum() == {"count": 5, "lives": 0, "instances": 0, "retired": 1}
    assert records.sum("g") == {"number": 0, "lives": 0, "instances": 0, "retired": 0}


@pytest.mark.parametrize(("at", "wall"), [(7, 6), (6, 7)])
def test_a_life_is_forgotten_only_by_both_clocks_and_by_a_clock_record(at: int, wall: int) -> None:
    """Rule 3: neither a broker's clock nor an aggregator's suffices. Another partition's record does nothing."""
    records = Records().snapshot(counter(5)).append(b"x", None, at=7 * DAY_MS)
    assert records.sum()["retired"] == 0
    assert Records().snapshot(counter(5)).clock(at * DAY_MS, wall * DAY_MS).sum()["retired"] == 0
    assert records.clock(8 * DAY_MS, partition=1).sum()["retired"] == 0
    assert records.clock(0, 8 * DAY_MS).sum()["retired"] == 1


@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"v":1,"wall_ms":-1}', b'{"v": 1,"wall_ms":1}'])
def test_anything_else_with_the_key_of_the_clock_is_refused(value: bytes | None) -> None:
    """It advances the partition's clock as every record does."""
    records = Records().snapshot(gauge(1)).append(b"tallystream-clock", value, at=3000)
    assert (len(records.refused), records.sum("g")["lives"]) == (1, 0)


def test_a_silent_life_continues_if_its_record_is_not_late() -> None:
    """Rule 3: only the record's own append time decides. A record that is days ahead refuses no other record."""
    records = Records().snapshot(counter(5)).append(b"x", None, at=3 * DAY_MS)
    records.snapshot(counter(8), seq=2, prev=BEGIN_MS, at=DAY_MS - 1)
    assert (records.refused, records.sum()["count"]) == ([], 8)


@pytest.mark.parametrize(("days", "left"), [(6, 0), (7, 5)])
def test_a_tombstone_keeps_forgotten_lives(days: int, left: int) -> None:
    """Rule 10: a life that was forgotten before it stays in the sum."""
    records = Records().snapshot(counter(5)).clock(days * DAY_MS).append(b"app-1", None, at=days * DAY_MS)
    assert records.sum()["count"] == left
    assert records.sum()["retired"] == int(left > 0)


def forget(**named: Any) -> bytes:
    return json.dumps({"v": 1, "forget": named}).encode()


def test_a_forget_record_removes_lives() -> None:
    """Rule 10: it removes one life, those of an app, or all of the instance. Forgotten lives stay in the sum."""
    records = Records().snapshot(counter(1)).snapshot(counter(2), life=SECOND).snapshot(counter(4), key=b"app-2")
    assert records.append(b"app-1", forget(life=SECOND)).sum()["count"] == 5
    assert records.append(b"app-1", forget(app="mail")).sum()["count"] == 5
    assert records.append(b"app-1", forget()).sum()["count"] == 4
    assert records.clock(7 * DAY_MS).append(b"app-2", forget(), at=7 * DAY_MS).sum()["count"] == 4


def test_a_forget_record_removes_a_metric_from_its_partition_and_from_forgotten_lives() -> None:
    """Rule 10: other partitions keep the metric. If the record is for one shard, other shards keep it, too."""
    records = Records().snapshot(counter(1)).snapshot(counter(2), key=b"app-2", partition=1)
    assert records.append(b"x", forget(metric="n", type="gauge")).sum()["count"] == 3
    assert records.append(b"x", forget(metric="n")).sum()["count"] == 2
    records.replay.split(2)
    assert records.append(b"app-11", forget(metric="n", shards=2), partition=1).sum()["count"] == 2
    assert records.clock(8 * DAY_MS, partition=1).sum()["count"] == 2
    assert records.append(b"app-2", forget(metric="n", shards=2)).sum()["count"] == 0


@pytest.mark.parametrize("newer_first", [True, False])
def test_the_highest_seq_counts_for_each_metric_while_an_instance_moves(*, newer_first: bool) -> None:
    """Rule 1: a metric that the newer snapshot lacks keeps its older value, whichever partition is read first."""
    records = Records()
    older = {"seq": 1, "partition": 0}
    newer = {"seq": 2, "partition": 1, "prev": BEGIN_MS}
    for header, metrics in sorted([(older, (5, 3)), (newer, (9,))], key=lambda one: one[0]["seq"], reverse=newer_first):
        records.snapshot(*(counter(n, name) for n, name in zip(metrics, "nm", strict=False)), **header)
    assert (records.sum()["count"], records.sum("m")["count"]) == (9, 3)


def test_extremes_of_a_life_only_widen() -> None:
    """Rule 7: a later snapshot with a narrower range changes neither min nor max."""
    records = Records().snapshot(histogram(2, min=1, max=9)).snapshot(histogram(3, min=2, max=8), seq=2)
    assert (records.sum("h")["min"], records.sum("h")["max"]) == (1, 9)


@pytest.mark.parametrize("header", [{}, {"prev": BEGIN_MS}])
def test_a_life_whose_ulid_is_more_than_a_day_ahead_is_refused(header: dict[str, Any]) -> None:
    """Rule 3: this holds with and without `prev`. Exactly a day ahead is accepted."""
    assert Records().snapshot(counter(5), at=-DAY_MS - 1, **header).refused
    assert not Records().snapshot(counter(5), at=-DAY_MS, **header).refused


@pytest.mark.parametrize("header", [{}, {"prev": BEGIN_MS}])
def test_a_record_that_comes_a_day_late_is_refused(header: dict[str, Any]) -> None:
    """Rule 3: a record is late a day after its `prev`, or after the life's ULID if it has no `prev`."""
    assert Records().snapshot(counter(1), at=DAY_MS, **header).refused
    assert not Records().snapshot(counter(1), at=DAY_MS - 1, **header).refused


def test_only_the_metric_whose_count_decreases_is_refused() -> None:
    """Rule 4: the metric keeps its last count, and the other metric of the snapshot is accepted."""
    records = Records().snapshot(counter(5), counter(5, "m")).snapshot(counter(4), counter(6, "m"), seq=2)
    assert len(records.refused) == 1
    assert (records.sum()["count"], records.sum("m")["count"]) == (5, 6)


def test_a_sum_beyond_its_range_is_the_number_at_its_end() -> None:
    """Rule 4: a sum of either sign never wraps. A float sum is limited to the range of floats and has no mean."""
    records = Records().snapshot(counter(2**63 - 1)).snapshot(counter(1), key=b"app-2")
    assert (records.sum()["count"], records.sum()["overflow"]) == (2**63 - 1, True)
    for value, bound in ((-(2**63), -(2**63)), (1.5e308, sys.float_info.max), (-1.5e308, -sys.float_info.max)):
        found = Records().snapshot(gauge(value)).snapshot(gauge(value), key=b"app-2").sum("g")
        assert (found["sum"], found["min"], found["overflow"], "mean" in found) == (bound, value, True, False)


def test_gauges_are_summed_over_the_living() -> None:
    """Rule 5: a life is living for three intervals, or until its final snapshot."""
    records = Records().snapshot(gauge(1)).snapshot(gauge(2.5), life=SECOND, at=1000)
    assert records.sum("g") == {
        "number": 2,
        "sum": 3.5,
        "min": 1,
        "max": 2.5,
        "mean": 1.75,
        "lives": 2,
        "instances": 1,
        "retired": 0,
    }
    assert records.clock(3000).sum("g")["number"] == 1
    assert records.clock(4000).sum("g")["number"] == 0
    records = Records().snapshot(gauge(1)).snapshot(gauge(2.5), life=SECOND, at=1000)
    assert records.snapshot(gauge(2), life=SECOND, seq=2, final=True, at=1000).sum("g")["sum"] == 1


def test_rates_are_summed_over_the_living_and_the_count_stays() -> None:
    """Rule 6: a meter of silent lives has its count and no rates."""
    meter = {"type": "meter", "name": "n", "count": 3, "m1_rate": 0.5}
    records = Records().snapshot(meter).snapshot(meter, key=b"app-2")
    assert (records.sum()["count"], records.sum()["m1_rate"]) == (6, 1.0)
    silent = records.clock(3000).sum()
    assert silent == {"count": 6, "lives": 0, "instances": 0, "retired": 0}


def test_quantiles_are_of_the_merged_sketches() -> None:
    """Rule 7: three values of bucket 0 and one of bucket 64 have their median in bucket 0."""
    records = Records().snapshot(histogram(3, sum=3, sketch=sketch(0, 3)))
    records.snapshot(histogram(1, sum=4, min=4, max=4, sketch=sketch(64, 1)), key=b"app-2")
    found = records.sum("h")
    assert (found["count"], found["sum"], found["min"], found["max"]) == (4, 7, 4, 4)
    base = 2 ** (1 / 64)
    assert math.isclose(found["p50"], 2 * base / (base + 1))
    assert math.isclose(found["p999"], 2 * base / (base + 1))
    assert records.replay.apply("metrics:0", BEGIN_MS, b"app-3", None) == []
    records.snapshot(histogram(9, sketch=sketch(64, 9)), key=b"app-3")
    assert math.isclose(records.sum("h")["p999"], 2 * 2 * base / (base + 1))


def test_one_life_without_a_sketch_removes_the_quantiles() -> None:
    """Rule 7: quantiles cover the complete count or are absent. A life with a count of 0 needs no sketch."""
    records = Records().snapshot(histogram(3, sketch=sketch(0, 3)))
    assert "p50" in records.snapshot(histogram(0), key=b"app-2").sum("h")
    assert "p50" not in records.snapshot(histogram(1), key=b"app-3").sum("h")


def test_sketches_of_two_scales_are_merged_at_the_smaller_one() -> None:
    """Bucket 130 at scale 6 is in (4, 8], the bucket 2 at scale 0."""
    records = Records().snapshot(histogram(9, sketch=sketch(130, 9)))
    records.snapshot(histogram(1, sketch=sketch(2, 1, scale=0)), key=b"app-2")
    assert math.isclose(records.sum("h")["p50"], 2 * 4 * 8 / (4 + 8))


@pytest.mark.parametrize("value", [b"{", b"\xff", b"[]", b'{"name":"a","value":-1}', b'{"metrics":{}}', b"[" * 100_000])
def test_an_unreadable_value_is_refused(value: bytes) -> None:
    """Rule 8: the record is one dead letter."""
    assert len(Records().append(b"app-1", value).refused) == 1


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"k" * 1025, b"nul\0"])
def test_a_key_that_is_no_instance_is_refused(key: bytes | None) -> None:
    """Rule 8: every record needs a readable instance ID, also a tombstone."""
    assert len(Records().append(key, None).refused) == 1


@pytest.mark.parametrize("value", ["NaN", "null", "1e400", '"1"', "true"])
def test_only_the_gauge_that_is_no_number_is_refused(value: str) -> None:
    """Rule 8: the other metrics of the snapshot are accepted."""
    text = json.dumps({"v": 1, "app": "shop", "life": FIRST, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000})[:-1]
    bad = '{"type":"gauge","name":"g","value":' + value + "}"
    good = '{"type":"counter","name":"n","count":1}'
    records = Records().append(b"app-1", (text + f',"final":false,"metrics":[{bad},{good}]}}').encode())
    assert len(records.refused) == 1
    assert records.sum()["count"] == 1


def test_a_metric_that_is_missing_keeps_its_count_and_loses_its_gauge() -> None:
    """Rule 9: a metric that the newest snapshot of its part lacks is not current."""
    records = Records().snapshot(counter(5), gauge(1)).snapshot(seq=2)
    assert records.sum() == {"count": 5, "lives": 0, "instances": 0, "retired": 0}
    assert records.sum("g")["number"] == 0


def test_positions_keep_the_lowest_start_and_the_highest_end() -> None:
    """Rule 9: this holds over all lives and within each life."""
    records = Records()
    for seq, (start, position) in enumerate([(5, 9), (7, 8), (4, 6)], 1):
        records.snapshot({"type": "position", "name": "p", "start": start, "position": position}, seq=seq)
    assert (records.sum("p")["start"], records.sum("p")["position"]) == (4, 9)


def test_a_tombstone_removes_every_life_and_a_higher_seq_counts_again() -> None:
    """Rule 10: silent lives are removed, too. Their seqs stay, so a duplicate does not restore a life."""
    records = Records().snapshot(counter(1), key=b"app-1", life=SECOND).append(b"x", None, at=2 * DAY_MS)
    header = {"prev": BEGIN_MS + DAY_MS + 1, "at": 2 * DAY_MS}
    records.snapshot(counter(5), seq=3, **header).append(b"app-1", None, at=2 * DAY_MS)
    assert records.sum()["count"] == 0
    assert records.snapshot(counter(5), seq=3, **header).sum()["count"] == 0
    assert records.snapshot(counter(4), seq=4, **header).sum()["count"] == 4


def test_the_short_form_adds_up_over_restarts_until_a_tombstone() -> None:
    """A lower value is a restart and keeps the earlier count. Only a tombstone removes the counter."""
    records = Records().short(5).short(7).short(2)
    assert records.sum()["count"] == 9
    assert records.append(b"x", None, at=10 * DAY_MS).sum()["count"] == 9
    assert records.append(b"script", None, at=10 * DAY_MS).sum()["count"] == 0


def test_metrics_within_a_limit_count() -> None:
    """Rule 11: the metrics over a limit of a record or life are one dead letter, and so is a record too large."""
    records = Records(Settings(max_metrics=2, max_record_bytes=500))
    assert len(records.snapshot(*(counter(1, name) for name in "abcd")).refused) == 1
    assert [identity[2] for identity in records.replay.sums()] == ["a", "b"]
    assert len(records.snapshot(counter(1, "e"), counter(2, "a"), seq=2).refused) == 1
    assert records.sum("a")["count"] == 2
    assert len(records.snapshot(counter(1, "x" * 500), seq=3).refused) == 1


def test_lives_parts_and_metrics_beyond_the_room_of_the_table_are_refused() -> None:
    """Rule 11: an app may have three quarters of the bytes. What is known still counts."""
    records = Records(Settings(max_table_bytes=8_000)).snapshot(counter(1, "a"), counter(2, "b"))
    assert records.refused == ["too many bytes per app"]
    assert records.snapshot(counter(1), life=SECOND).refused == ["no room for a life: bytes per app"]
    assert not records.snapshot(counter(5, "a"), seq=2).refused
    assert not records.snapshot(key=b"app-2", app="other").refused
    assert records.snapshot(key=b"app-3", app="other").refused == ["no room for a life: bytes per table"]
    records.append(b"app-1", None)
    assert not records.snapshot(counter(2, "b"), seq=3).refused


def test_many_bad_metrics_of_a_record_are_few_dead_letters() -> None:
    """Rule 11: ten metrics have one each, the other bad metrics one, and those over the record's limit one."""
    records = Records(Settings(max_metrics=50)).snapshot(*([1] * 60))
    assert len(records.refused) == 12


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ['\\"', '"\\', "[]", '""', "]["], ids=repr)
def test_a_megabyte_of_hostile_text_is_refused_in_time_that_grows_with_its_size(text: str) -> None:
    """The text has open quotes, brackets, or both. In quadratic time each case would take more than an hour."""
    value = b"[" * 65 + b'"' + text.encode() * (1_000_000 // len(text))
    assert isinstance(read_value(value, 100), Refusal)


def test_the_limit_of_nesting_is_that_of_both_readers() -> None:
    """Brackets within strings don't count, and an escaped quote does not end a string."""

    def deep(depth: int) -> bytes:
        inner = b"[" * (depth - 1) + b"]" * (depth - 1)
        return b'{"name":"[{\\"[","value":1,"x":' + inner + b"}"

    for read_one in (record_reader.read, read_value):
        assert not isinstance(_metric_counts(read_one, deep(64)), str)
        assert isinstance(_metric_counts(read_one, deep(65)), str)


def _metric_counts(read_one: Any, value: bytes) -> Any:
    try:
        found = read_one(value, 100)
    except record_reader.RejectedError as refused:
        return str(refused)
    return found.reason if isinstance(found, Refusal) else found


def test_forgotten_lives_are_kept_as_one() -> None:
    """Memory does not grow with them: each metric has one row of them. Counts, sums and sketches stay exact."""
    records, times = Records(), range(0, 20 * 8, 8)
    for at in times:
        values = histogram(1, sum=0.1, min=at, max=at, sketch=sketch(at, 1, scale=6 - at % 3)), counter(2**62), gauge(1)
        header: dict[str, Any] = {"life": f"01HF7YAT00{at:016}", "prev": BEGIN_MS + at * DAY_MS}
        records.snapshot(*values, key=b"app-%d" % at, at=at * DAY_MS, **header)
        assert records.refused == []
        records.clock((at + 8) * DAY_MS)
    found, replay = records.sum("h"), records.replay
    assert (found["count"], found["sum"], found["min"], found["max"]) == (20, math.fsum([0.1] * 20), 0, times[-1])
    assert sum(found["sketch"][1].values()) == found["retired"] == 20
    assert records.sum() == {"count": MAX_INT64, "overflow": True, "lives": 0, "instances": 0, "retired": 20}
    assert records.sum("g") == {"number": 0, "lives": 0, "instances": 0, "retired": 0}
    assert list(replay._uses.values()) == [1, 1, 0]
    assert replay._instances == {}
