"""Lives are silent, go on and are forgotten, and no sum changes (rule 3)."""

from __future__ import annotations

import json

import pytest

from support import otlp
from support.steps import run
from support.topic import BEGIN_MS, DAY_MS, FIRST, Topic, counter, gauge
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.state import pack, unpack

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


def test_a_newer_record_of_a_silent_life_replaces_what_it_had() -> None:
    """It is the same life: 12 replaces 10, the gauge counts again, and there is no restart."""
    topic = silent(counter(10), gauge(1)).snapshot(counter(12), gauge(3), seq=2, prev=BEGIN_MS, at=DAY_MS - 1)
    assert (topic.sum().count, topic.sum("g").sum, topic.kinds()) == (12, 3, [])


def test_a_stale_record_of_a_silent_life_changes_nothing() -> None:
    """The seqs of a life are known until it is forgotten."""
    topic = silent(counter(10)).snapshot(counter(10), at=DAY_MS - 1)
    assert (topic.changes.totals, topic.table.state.stale) == ([], 1)


class Forgetting:
    """A table whose one life is due to be forgotten after seven days."""

    def __init__(self) -> None:
        self.table = Table(State(), TableSettings(forget_after_ms=7 * DAY_MS))
        self.number = 0
        self.step(snapshot(0, counter(10), histogram(1, 9), gauge(5)))

    def step(self, *records: Record) -> list[bytes]:
        """Run a step, and return the keys of `metrics-table` that it writes, without that of the shard."""
        self.changes = run(self.table, records)
        return [row.key for row in self.changes.rows if row.key[:7] != b'["shard']

    def clock(self, days: float, wall: float | None = None) -> list[bytes]:
        """Run a step with a clock record, whose wall clock is that of the partition if `wall` is not given."""
        self.number += 1
        at_ms, wall_ms = (BEGIN_MS + int(day * DAY_MS) for day in (days, days if wall is None else wall))
        return self.step(Record("metrics", 0, self.number, at_ms, CLOCK_KEY, clock_value(wall_ms)))


def test_a_life_is_forgotten_in_one_step_and_no_sum_changes() -> None:
    """Its row is deleted, and the forgotten sums have its counts, min and max."""
    topic = Forgetting()
    topic.clock(1)
    assert [key[:12] for key in topic.clock(7)] == [b'["life","sho', b'["forgotten"', b'["forgotten"']
    assert topic.changes.rows[0].row is None
    assert {t.metric[1]: (t.count, t.retired) for t in topic.changes.totals} == {
        "n": (10, 1),
        "h": (2, 1),
        "g": (None, 0),
    }
    assert (topic.clock(8), topic.table.state.forgotten, topic.table.state.lives) == ([], 1, {})
    topic.step(snapshot(90, histogram(3, 4), counter(1), instance=7, at=8 * DAY_MS, life=_life(8)))
    assert {t.metric[1]: (t.count, t.sum, t.min, t.max) for t in topic.changes.totals} == {
        "n": (11, None, None, None),
        "h": (4, 17, 1, 9),
    }


@pytest.mark.parametrize(("days", "wall"), [(8, 6), (6, 8)], ids=["wall clock", "partition"])
def test_a_life_is_forgotten_only_when_both_clocks_have_passed(days: int, wall: int) -> None:
    """No life is forgotten because one clock jumps, nor by any other record."""
    topic = Forgetting()
    assert (topic.clock(days, wall), topic.table.state.forgotten) == ([], 0)
    topic.step(Record("metrics", 0, 9, BEGIN_MS + 9 * DAY_MS, b"app-1", None))
    assert topic.table.state.forgotten == 0
    topic.clock(1, 9)
    assert topic.table.state.forgotten == 1


@pytest.mark.parametrize("earlier", [False, True])
def test_a_step_that_changes_a_life_and_forgets_it_counts_it_once(*, earlier: bool) -> None:
    """Whether it was in the table before or not, and with a tombstone and a new life of its instance behind it."""
    topic = Forgetting()
    if not earlier:
        topic = Forgetting.__new__(Forgetting)
        topic.table, topic.number = Table(State(), TableSettings(forget_after_ms=7 * DAY_MS)), 0
    body = snapshot(1, counter(30), histogram(0, 10, 4), gauge(6)).value or b""
    newer = Record("metrics", 0, 1, BEGIN_MS + 1, b"app-0", body.replace(b'"seq": 1', b'"seq": 2'))
    clock = Record("metrics", 0, 2, BEGIN_MS + 8 * DAY_MS, CLOCK_KEY, clock_value(BEGIN_MS + 8 * DAY_MS))
    tombstone = Record("metrics", 0, 3, BEGIN_MS + 8 * DAY_MS, b"app-0", None)
    later = snapshot(4, counter(1), gauge(2), at=8 * DAY_MS, life=_life(8))
    topic.step(newer, clock, tombstone, later)
    found = {t.metric[1]: (t.count, t.lives, t.instances, t.retired) for t in topic.changes.totals}
    assert found == {"n": (31, 1, 1, 1), "h": (4, 0, 0, 1), "g": (None, 1, 1, 0)}
    assert {t.metric[1]: t.max for t in topic.changes.totals} == {"n": None, "h": 10, "g": 2}
    again = Table(unpack(pack(topic.table.state)))
    again.publish_all()
    assert run(again, []).totals == topic.changes.totals


def test_lives_of_an_otlp_topic_are_forgotten_by_its_records() -> None:
    """It has no clock records. A record at the time at which a life is due forgets the life before it counts."""
    table = Table(State(), TableSettings(forget_after_ms=7 * DAY_MS, otlp_topics=("otlp",)))
    forget = b'{"v":1,"forget":{"app":"none"}}'

    def step(at: int, value: bytes | None) -> int:
        run(table, [Record("otlp", 0, at, at, b"x", value)])
        return table.state.forgotten

    (resource,) = [otlp.resource_metrics([otlp.counter("n", otlp.number(1))], service__name="shop")]
    start = otlp.BEGIN_NS // 1_000_000 + 1000
    assert step(start, otlp.encode(resource)) == 0
    assert step(start + 7 * DAY_MS - 1, forget) == 0
    assert step(start + 7 * DAY_MS, forget) == 1


def test_the_short_form_is_never_forgotten() -> None:
    """Its records have no `prev`, so none is too late."""
    topic = Forgetting()
    topic.step(Record("metrics", 0, 0, BEGIN_MS, b"script", b'{"name":"n","value":5}'))
    topic.clock(40)
    assert list(topic.table.state.lives) == ["script"]
    topic.step(Record("metrics", 0, 9, BEGIN_MS + 42 * DAY_MS, b"script", b'{"name":"n","value":3}'))
    assert [total.count for total in topic.changes.totals] == [8]


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
        for record in order:
            changes = run(table, [record])
            sums |= {total.metric[1]: total.count for total in changes.totals}
        assert sums == {"n": 7, "m": 4}


def test_a_stale_snapshot_of_a_part_that_moved_adds_what_newer_ones_lack_though_another_part_moved_back() -> None:
    """The partition of the newest snapshot of the same part decides. Records of another part make no difference.

    The same holds for a table that is made again from its rows between the records.
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
    for from_rows in (False, True):
        table, latest, sums = Table(State()), LatestRows(), {}
        for record in [newer, *older]:
            changes = run(table, [record])
            sums |= {total.metric[1]: total.count for total in changes.totals}
            for row in changes.rows:
                latest.add(row.key, row.value())
            if from_rows:
                table = Table(restore(latest).states[0])
        assert sums == {"n": 7, "m": 4, "other": 1}


def _life(day: int) -> str:
    return new_ulid(BEGIN_MS + day * DAY_MS)
