"""Lives are silent, go on and are forgotten, and no sum changes (rule 3)."""

from __future__ import annotations

import pytest

from support import otlp
from support.steps import BEGIN_MS, Topic, counter, gauge, run
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, pack, unpack
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value
from tallystream_aggregator.times import DAY_MS, HOUR_MS

TICK = b'{"name":"tick","value":1}'


def silent(*metrics: object) -> Topic:
    """Return a topic whose table has one life with these metrics, which is silent."""
    return Topic().snapshot(*metrics).append(b"clock", TICK, at=2 * DAY_MS)


def histogram(low: float, high: float, count: int = 2) -> dict[str, object]:
    """Return a histogram as a record has it."""
    return {"type": "histogram", "name": "h", "count": count, "sum": low + high, "min": low, "max": high}


def clock(topic: Topic, days: float, wall: float | None = None) -> list[bytes]:
    """Run a step with a clock record, whose wall clock is that of the partition if `wall` is not given.

    Return the keys of `metrics-table` that it writes, without that of the shard.
    """
    wall_ms = BEGIN_MS + int((days if wall is None else wall) * DAY_MS)
    topic.append(CLOCK_KEY, clock_value(wall_ms), at=int(days * DAY_MS))
    return [row.key for row in topic.changes.rows if not row.key.startswith(b'["shard"')]


def test_a_newer_record_of_a_silent_life_replaces_what_it_had() -> None:
    """It is the same life: 12 replaces 10, the gauge counts again, and there is no restart."""
    topic = silent(counter(10), gauge(1)).snapshot(counter(12), gauge(3), seq=2, prev=BEGIN_MS, at=DAY_MS - 1)
    assert (topic.sum().count, topic.sum("g").sum, topic.kinds()) == (12, 3, [])


def test_a_stale_record_of_a_silent_life_changes_nothing() -> None:
    """The seqs of a life are known until it is forgotten."""
    topic = silent(counter(10)).snapshot(counter(10), at=DAY_MS - 1)
    assert (topic.changes.totals, topic.table.state.stale) == ([], 1)


def forgetting() -> Topic:
    """Return a topic whose table has one life, which is due to be forgotten after seven days."""
    return Topic(TableSettings(forget_after_ms=7 * DAY_MS)).snapshot(counter(10), histogram(1, 9), gauge(5))


def test_a_life_is_forgotten_in_one_step_and_no_sum_changes() -> None:
    """Its row is deleted, and the forgotten sums have its counts, min and max."""
    topic = forgetting()
    clock(topic, 1)
    assert [key[:12] for key in clock(topic, 7)] == [b'["life","sho', b'["forgotten"', b'["forgotten"']
    assert topic.changes.rows[0].row is None
    assert {t.metric[1]: (t.count, t.retired) for t in topic.changes.totals} == {
        "n": (10, 1),
        "h": (2, 1),
        "g": (None, 0),
    }
    assert (clock(topic, 8), topic.table.state.forgotten, topic.table.state.lives) == ([], 1, {})
    at = 8 * DAY_MS
    topic.snapshot(histogram(3, 4), counter(1), key=b"app-2", life=new_ulid(BEGIN_MS + at), at=at)
    assert {t.metric[1]: (t.count, t.sum, t.min, t.max) for t in topic.changes.totals} == {
        "n": (11, None, None, None),
        "h": (4, 17, 1, 9),
    }


def test_a_life_is_forgotten_after_the_time_of_now() -> None:
    """If the setting changes, the lives that the table has are forgotten after the new time."""
    topic = forgetting()
    topic.table.change_settings(TableSettings(forget_after_ms=9 * DAY_MS))
    clock(topic, 8)
    assert topic.table.state.forgotten == 0
    topic.table.change_settings(TableSettings(forget_after_ms=5 * DAY_MS))
    clock(topic, 8)
    assert (topic.table.state.forgotten, topic.table.state.lives) == (1, {})


@pytest.mark.parametrize(("days", "wall"), [(8, 6), (6, 8)], ids=["wall clock", "partition"])
def test_a_life_is_forgotten_only_when_both_clocks_have_passed(days: int, wall: int) -> None:
    """No life is forgotten because one clock jumps, nor by any other record."""
    topic = forgetting()
    assert (clock(topic, days, wall), topic.table.state.forgotten) == ([], 0)
    topic.append(b"app-1", None, at=9 * DAY_MS)
    assert topic.table.state.forgotten == 0
    clock(topic, 1, 9)
    assert topic.table.state.forgotten == 1


@pytest.mark.parametrize("begins_again", [False, True], ids=["one table", "restarts"])
def test_a_life_that_reports_is_never_forgotten(*, begins_again: bool) -> None:
    """It is due seven days after its last record, also a stale one, of any part. Until then its seqs are known."""
    settings = TableSettings(forget_after_ms=7 * DAY_MS)
    topic, hours = Topic(settings).snapshot(counter(0, "m"), part=1).snapshot(counter(0)), 23 * HOUR_MS
    for number in range(1, 41):
        at = number * hours
        topic.snapshot(counter(number), seq=number + 1, prev=BEGIN_MS + at - hours, at=at)
        assert topic.sum().count == number
        clock(topic, at / DAY_MS)
        if begins_again:
            topic.table = Table(unpack(pack(topic.table.state)), settings)
    last = 41 * hours
    topic.snapshot(counter(40), seq=41, prev=BEGIN_MS + last - hours, at=last)
    assert (topic.sum().count, topic.table.state.stale) == (40, 1)
    clock(topic, last / DAY_MS + 6.99)
    assert topic.table.state.forgotten == 0
    clock(topic, last / DAY_MS + 7)
    assert topic.table.state.forgotten == 1


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
    topic = forgetting().short(5)
    clock(topic, 40)
    assert list(topic.table.state.lives) == ["script"]
    assert topic.short(3, at=42 * DAY_MS).sum().count == 8
