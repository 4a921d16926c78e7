"""Lives are silent, go on and are forgotten, and no sum changes (rule 3)."""

from __future__ import annotations

import json

import pytest

from support.topic import BEGIN_MS, DAY_MS, FIRST, Topic, counter, gauge
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.restore.latest_rows import LatestRows
from tallystream_aggregator.table.restore.restore import restore
from tallystream_aggregator.table.table import run_batch

TICK = b'{"name":"tick","value":1}'


def silent(*metrics: object) -> Topic:
    """Return a topic whose table has one life with these metrics, which is silent."""
    return Topic().snapshot(*metrics).append(b"clock", TICK, at=2 * DAY_MS)


def histogram(low: float, high: float, count: int = 2) -> dict[str, object]:
    """Return a histogram as a record has it."""
    return {"type": "histogram", "name": "h", "count": count, "sum": low + high, "min": low, "max": high}


def snapshot(number: int, *metrics: object, instance: int = 0, at: int = 0, life: str = FIRST) -> Record:
    """Return a snapshot's record."""
    body = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
    value = json.dumps({**body, "metrics": metrics}).encode()
    return Record("metrics", 0, number, BEGIN_MS + at, b"app-%d" % instance, value)


def tick(number: int, at: int) -> Record:
    """Return a record of another instance, which moves the partition's clock."""
    return Record("metrics", 0, number, BEGIN_MS + at, b"clock", TICK)


def test_a_newer_record_of_a_silent_life_replaces_what_it_had() -> None:
    """It is the same life: 12 replaces 10, the gauge counts again, and there is no restart."""
    topic = silent(counter(10), gauge(1)).snapshot(counter(12), gauge(3), seq=2, prev=BEGIN_MS, at=DAY_MS - 1)
    assert (topic.sum().count, topic.sum("g").sum, topic.kinds()) == (12, 3, [])


def test_a_stale_record_of_a_silent_life_changes_nothing() -> None:
    """The seqs of a life are known until it is forgotten."""
    topic = silent(counter(10)).snapshot(counter(10), at=DAY_MS - 1)
    assert (topic.changes.totals, topic.table.state.stale) == ([], 1)


class Forgetting:
    """A table whose one life is due to be forgotten, batch by batch."""

    def __init__(self) -> None:
        self.table = Table(State(), TableSettings(forget_after_ms=7 * DAY_MS))
        self.number = 0
        self.batch(snapshot(0, counter(10), histogram(1, 9), gauge(5)), at=0)

    def batch(self, *records: Record, at: int, now: int | None = None, waiting: bool = False) -> list[bytes]:
        """Run a batch, with a record that moves the clock, and return the keys of `metrics-table` that it writes."""
        self.number += 1
        now_ms = BEGIN_MS + (at if now is None else now) + self.number
        read, left = [*records, tick(self.number, at)], ["metrics:1"] if waiting else []
        self.changes = run_batch(self.table, read, now_ms=now_ms, waiting=left)
        return [row.key for row in self.changes.rows if row.key[:7] != b'["shard' and b"clock" not in row.key]


def test_a_life_is_forgotten_in_four_batches_and_no_sum_changes() -> None:
    """It is listed, added to the forgotten sums, its row is deleted, then the list. Its counts, min and max stay."""
    topic = Forgetting()
    topic.batch(at=2 * DAY_MS)
    listed = topic.batch(at=8 * DAY_MS)
    assert listed == [b'["forgetting",0,1,0]']
    assert {t.metric[1]: (t.totals["count"], t.retired) for t in topic.changes.totals if t.metric[0] == "shop"} == {
        "n": (10, 1),
        "h": (2, 1),
    }
    assert [key[:12] for key in topic.batch(at=8 * DAY_MS)] == [b'["forgotten"', b'["forgotten"']
    assert [key[:7] for key in topic.batch(at=8 * DAY_MS)] == [b'["life"']
    assert topic.batch(at=8 * DAY_MS) == [b'["forgetting",0,1,0]']
    assert topic.batch(at=8 * DAY_MS) == []
    assert (topic.table.state.forgotten, topic.table.state.lists) == (1, {})
    topic.batch(snapshot(90, histogram(3, 4), counter(1), instance=7, at=8 * DAY_MS, life=_life(8)), at=8 * DAY_MS)
    assert {t.metric[1]: t.totals for t in topic.changes.totals if t.metric[0] == "shop"} == {
        "n": {"count": 11},
        "h": {"count": 4, "sum": 17, "min": 1, "max": 9},
    }


@pytest.mark.parametrize(
    ("at", "now", "waiting"), [(8, 6, False), (6, 8, False), (8, 8, True)], ids=["wall clock", "partition", "a backlog"]
)
def test_a_life_is_forgotten_only_when_both_clocks_have_passed_and_nothing_is_left_to_read(
    at: int, now: int, *, waiting: bool
) -> None:
    """No life is forgotten because one clock jumps, or in a batch that leaves records unread."""
    topic = Forgetting()
    topic.batch(at=2 * DAY_MS)
    assert topic.batch(at=at * DAY_MS, now=now * DAY_MS, waiting=waiting) == []
    assert topic.table.state.forgotten == 0


def test_a_life_that_is_being_forgotten_never_comes_back() -> None:
    """Its next record is a dead letter. Only a broker's clock that is days slow can append one in time."""
    topic = Forgetting()
    topic.batch(at=2 * DAY_MS)
    topic.batch(at=8 * DAY_MS)
    topic.batch(snapshot(91, counter(11), life=FIRST), at=8 * DAY_MS)
    assert [letter.reason for letter in topic.changes.dead] == ["too late: the life is being forgotten"]


def test_the_short_form_is_never_forgotten() -> None:
    """Its records have no `prev`, so none is too late."""
    table = Table(State(), TableSettings(forget_after_ms=7 * DAY_MS))
    script = Record("metrics", 0, 0, BEGIN_MS, b"script", b'{"name":"n","value":5}')
    run_batch(table, [script], now_ms=1)
    for number, days in enumerate((2, 40, 41, 42), 1):
        run_batch(table, [tick(number, days * DAY_MS)], now_ms=BEGIN_MS + days * DAY_MS)
    assert list(table.state.lives) == ["script", "clock"]
    later = Record("metrics", 0, 9, BEGIN_MS + 42 * DAY_MS, b"script", b'{"name":"n","value":3}')
    changes = run_batch(table, [later], now_ms=BEGIN_MS + 42 * DAY_MS + 1)
    assert [total.totals["count"] for total in changes.totals] == [8]


def test_a_stale_snapshot_of_an_instance_that_moved_adds_what_newer_ones_lack() -> None:
    """An older record of the former partition may have the last value of a metric that newer snapshots lack."""
    body = {"v": 1, "app": "shop", "life": FIRST, "part": 0, "ts": 0, "every_ms": 1000, "final": False}

    def written(partition: int, seq: int, *metrics: object) -> Record:
        value = json.dumps({**body, "seq": seq, "metrics": metrics}).encode()
        return Record("metrics", partition, seq, BEGIN_MS, b"app-1", value)

    older = [written(0, 1, counter(5), counter(3, "m")), written(0, 2, counter(6), counter(4, "m"))]
    newer = written(1, 3, counter(7))
    for order in ([*older, newer], [newer, *older], [older[0], newer, older[1]]):
        table, sums = Table(State()), {}
        for number, record in enumerate(order, 1):
            changes = run_batch(table, [record], now_ms=number)
            sums |= {total.metric[1]: total.totals["count"] for total in changes.totals}
        assert sums == {"n": 7, "m": 4}


def test_a_stale_snapshot_of_a_part_that_moved_adds_what_newer_ones_lack_though_another_part_moved_back() -> None:
    """The partition of the newest snapshot of the same part decides. Records of another part make no difference.

    The same holds for a table that is rebuilt between the records.
    """

    def written(partition: int, offset: int, part: int, seq: int, *metrics: object) -> Record:
        body = {"v": 1, "app": "shop", "life": FIRST, "part": part, "ts": 0, "every_ms": 1000, "final": False}
        value = json.dumps({**body, "seq": seq, "metrics": metrics}).encode()
        return Record("metrics", partition, offset, BEGIN_MS, b"app-1", value)

    newer = written(1, 0, 1, 3, counter(7))
    older = [
        written(0, 0, 0, 1, counter(1, "other")),
        written(0, 1, 1, 1, counter(5), counter(3, "m")),
        written(0, 2, 1, 2, counter(6), counter(4, "m")),
    ]
    for rebuilt in (False, True):
        table, latest, sums = Table(State()), LatestRows(), {}
        for number, record in enumerate([newer, *older], 1):
            changes = run_batch(table, [record], now_ms=number)
            sums |= {total.metric[1]: total.totals["count"] for total in changes.totals}
            for row in changes.rows:
                latest.add(row.key, row.value(epoch=1, batch=number))
            if rebuilt:
                table = Table(restore(latest).states[0])
        assert sums == {"n": 7, "m": 4, "other": 1}


def _life(day: int) -> str:
    return new_ulid(BEGIN_MS + day * DAY_MS)
