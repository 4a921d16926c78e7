"""What the table may have in memory, in bytes (rule 11, and docs/table.md, "Limits")."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import otlp
from support.schedules import play
from support.steps import BEGIN_MS, SECOND, Topic, counter, records_of, run
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, metric_sums, pack, unpack
from tallystream_aggregator.table.limits import size_of_life, size_of_metric, size_of_row
from tallystream_aggregator.table.lives import MIN_ADDED
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.times import DAY_MS

HEADER = {"app": "shop", "life": SECOND, "part": 0, "ts": 0, "every_ms": 60_000, "final": False}
COUNTER = ("shop", "n", "counter", ())
LIFE, METRIC, ROW = size_of_life("app-1", "shop", 1), size_of_metric(COUNTER), size_of_row(COUNTER)


def topic_with(room: int, app_room: int | None = None) -> Topic:
    """Return a topic whose table has room for so many bytes, and an app of it for fewer."""
    size = room if app_room is None else -(-app_room * 4 // 3)
    return Topic(TableSettings(max_table_bytes=size))


def test_rule_11_a_life_that_the_table_has_no_room_for_is_refused_until_it_has() -> None:
    """Known lives count on. The refused life counts in full as soon as another one has left room for it."""
    topic = topic_with(0, app_room=2 * LIFE + METRIC + 2 * ROW).snapshot(counter(1)).snapshot(counter(2), life=SECOND)
    third = new_ulid(BEGIN_MS)
    topic.snapshot(counter(4), life=third)
    assert topic.reasons() == [
        f"limit: a new life beyond the {2 * LIFE + METRIC + 2 * ROW} bytes that an app may have in the table"
    ]
    assert [(event.kind, event.life, event.detail) for event in topic.changes.events] == [
        ("limit", third, "bytes per app")
    ]
    assert topic.changes.was_full
    assert topic.snapshot(counter(3), seq=2).sum().count == 5
    assert not topic.changes.was_full
    at = 8 * DAY_MS
    topic.append(CLOCK_KEY, clock_value(BEGIN_MS + at), at=at)
    assert topic.snapshot(counter(8), life=third, at=at, prev=BEGIN_MS + at).sum().count == 13


def test_rule_11_an_app_has_three_quarters_of_the_table() -> None:
    """So an app with ever new names or lives leaves a quarter of it to the others."""
    topic = topic_with(4 * LIFE).snapshot().snapshot(life=SECOND).snapshot(life=new_ulid(BEGIN_MS))
    assert topic.reasons() == []
    topic.snapshot(life=new_ulid(BEGIN_MS))
    assert topic.reasons() == [f"limit: a new life beyond the {3 * LIFE} bytes that an app may have in the table"]
    assert topic.snapshot(app="post").reasons() == []
    topic.snapshot(app="mail", key=b"app-2")
    assert topic.reasons() == [f"limit: a new life beyond the {4 * LIFE} bytes that the table may have"]


def test_rule_11_new_metrics_over_the_limit_are_refused_and_the_rest_counts() -> None:
    """They make one dead letter a record and one event a life. Known metrics still count."""
    topic = topic_with(0, app_room=LIFE + 2 * (METRIC + ROW) + ROW).snapshot(*(counter(1, name) for name in "abcd"))
    assert topic.reasons()[0].startswith("limit: 2 metrics beyond the ")
    assert [(event.kind, event.detail) for event in topic.changes.events] == [("limit", "bytes per app")]
    assert [total.metric[1] for total in topic.changes.totals] == ["a", "b"]
    topic.snapshot(counter(1, "e"), counter(2, "a"), seq=2)
    assert (topic.sum("a").count, len(topic.changes.dead), topic.kinds()) == (2, 1, [])
    topic.table = Table(unpack(pack(topic.table.state)), topic.table.settings)
    topic.snapshot(counter(1, "e"), seq=3)
    assert len(topic.changes.dead) == 1


def test_rule_11_metrics_that_nothing_has_any_more_leave_room_for_others() -> None:
    """A tombstone and a forget record free what no other life has. The table drops these metrics."""
    topic = topic_with(0, app_room=LIFE + 2 * (METRIC + ROW))
    topic.snapshot(counter(1, "a"), counter(2, "b"), counter(3, "c"))
    assert len(topic.changes.dead) == 1
    topic.append(b"other", b'{"forget":{"metric":"b"}}')
    topic.append(b"app-1", None)
    topic.snapshot(counter(3, "c"), counter(4, "d"), counter(5, "e"), seq=2)
    assert len(topic.changes.dead) == 1
    assert {metric[1] for metric in topic.table.state.metrics.values()} == {"c", "d"}


def test_a_value_that_is_left_out_counts_and_goes_with_its_life() -> None:
    """A metric that only has such a value stays: it may return. So it counts, too."""
    table = Table(State(), TableSettings(otlp_topics=(otlp.TOPIC,)))
    points = [otlp.counter(name, otlp.number(5, time_ns=otlp.BEGIN_NS)) for name in ("a", "b")]
    append(table, otlp.encode(otlp.resource_metrics(points, service__name="shop", service__instance__id="app-1")), 0)
    append(table, b'{"forget":{"metric":"a"}}', 1)
    assert {metric[1] for metric in table.state.metrics.values()} == {"a", "b"}
    assert used(table) == used(Table(unpack(pack(table.state)), table.settings))
    append(table, b"", 2, at=10 * DAY_MS)
    assert {metric[1] for metric in table.state.metrics.values()} == {"b"}, "that of the forgotten sum"
    assert used(table) == {"shop": size_of_metric(COUNTER), None: size_of_metric(COUNTER)}


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=60), st.integers(10_000, 60_000))
@settings(max_examples=40)
def test_what_a_table_counts_is_the_same_after_it_begins_again(choices: list[int], size: int) -> None:
    """So the same records are refused after a failover, from the state or from the rows, whatever was stored."""
    rules = TableSettings(max_table_bytes=size, forget_after_ms=50_000, short_form_every_ms=5_000)
    table, rows = Table(State(), rules), LatestRows()
    for one in play(choices):
        for row in run(table, records_of([one])).rows:
            rows.add(row.key, row.value())
        counted = used(table)
        assert counted.get(None, 0) <= 2 * size
        assert used(Table(unpack(pack(table.state)), rules)) == counted
        latest = LatestRows()
        latest.rows |= rows.rows
        (state,) = restore(latest).states
        assert used(Table(state, rules)) == counted


@pytest.mark.parametrize("columns", [False, True])
def test_the_changes_that_wait_for_the_end_of_a_step_are_limited(
    *, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps the sketch that is replaced. The sums of those that do not wait are right, too."""
    monkeypatch.setattr(metric_sums, "MAX_WAITING", 4)
    topic, waiting = Topic(), list[int]()
    for count in range(1, 9):
        sketch = {"scale": 5, "positive": [{"offset": 0, "counts": b64encode(bytes([count])).decode()}]}
        more = {"sketch": sketch} if columns else {}
        metrics = [{"type": "histogram", "name": name, "count": count, "sum": float(count), **more} for name in "ab"]
        value = json.dumps(HEADER | {"seq": count, "metrics": metrics}).encode()
        topic.table.apply_record(Record("metrics", 0, count, BEGIN_MS, b"app-1", value, BEGIN_MS))
        waiting.append(topic.table._rows.sums._number_waiting)
        if count == 1:
            topic.table.outputs()  # a new life is changed as a whole
    assert waiting == [0, 2, 4, 2, 4, 2, 4, 2]
    assert [(total.count, total.sum) for total in topic.table.outputs().totals] == [(8, 8), (8, 8)]


@pytest.mark.parametrize("end", ["rows", "tombstone", "all"])
def test_the_records_that_are_kept_for_rows_are_counted(end: str) -> None:
    """The newest one of each part, until the rows are taken, the life is removed or all rows are due."""
    topic = Topic().snapshot(counter(1, "a"), counter(1, "b"), life=SECOND)
    values = [
        json.dumps(HEADER | {"seq": seq, "metrics": [counter(10**seq, "a"), counter(2, "b")]}).encode()
        for seq in (2, 3)
    ]
    for offset, value in enumerate(values, 1):
        topic.table.apply_record(Record("metrics", 0, offset, BEGIN_MS, b"app-1", value, BEGIN_MS))
    assert topic.table.waiting_bytes == len(values[-1])
    if end == "rows":
        topic.table.rows()
    elif end == "all":
        topic.table.publish_all()
    else:
        topic.table.apply_record(Record("metrics", 0, 3, BEGIN_MS, b"app-1", None, BEGIN_MS))
    assert topic.table.waiting_bytes == 0


def test_a_life_that_changes_its_interval_all_the_time_is_not_kept_many_times() -> None:
    """Nor is a life that ends and goes on again and again: what is due of it is there once or twice."""
    topic = Topic()
    for seq in range(1, 5 * MIN_ADDED):
        topic.snapshot(seq=seq, every_ms=3_600_000 - seq, final=seq % 2 == 0)
    heaps = topic.table._rows.lives._silence.heaps
    assert sum(map(len, heaps.values())) <= MIN_ADDED + 1


def test_an_instance_forgets_the_apps_that_it_has_no_lives_of() -> None:
    """Otherwise an instance with one living life and ever new apps would grow."""
    topic = Topic()
    for number in range(20):
        topic.snapshot(counter(1), app=f"app {number}")
    at = 8 * DAY_MS
    topic.snapshot(counter(1), app="new", at=at, prev=BEGIN_MS + at, life=SECOND)
    topic.append(CLOCK_KEY, clock_value(BEGIN_MS + at), at=at)
    assert list(topic.table._rows.lives._indexes["app-1"].apps) == ["new"]


def append(table: Table, value: bytes, offset: int, at: int = 0) -> None:
    run(table, [Record(otlp.TOPIC, 0, offset, BEGIN_MS + at, b"k", value, BEGIN_MS + at)])


def used(table: Table) -> dict[str | None, int]:
    """Return the bytes of each app and of all."""
    return table._rows.size._used
