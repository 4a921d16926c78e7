"""What the table may have in memory, in bytes (rule 11, and docs/table.md, "Limits")."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support import otlp
from support.schedules import play
from support.steps import run
from support.topic import BEGIN_MS, DAY_MS, SECOND, Topic, counter
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, pack, unpack
from tallystream_aggregator.table.deadlines import MIN_ADDED
from tallystream_aggregator.table.limits import size_of_life, size_of_metric, size_of_row
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value
from tallystream_aggregator.table.restore import LatestRows, restore

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
    assert topic.snapshot(counter(3), seq=2).sum().count == 5
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


def test_rule_11_a_part_that_the_table_has_no_room_for_is_refused() -> None:
    """Its life is known, and has the event once."""
    topic = topic_with(0, app_room=LIFE + METRIC + ROW + 100).snapshot(counter(1))
    topic.snapshot(part=1)
    assert topic.reasons()[0].startswith("limit: a new part beyond the ")
    assert topic.kinds() == ["limit"]
    assert topic.snapshot(part=2).kinds() == []
    assert topic.snapshot(counter(2), seq=2).sum().count == 2


def test_rule_11_the_short_form_has_the_limits_of_its_app() -> None:
    """A new script, and a new counter of one that is known, are refused. Known counters still count."""
    own = size_of_life("script", "default", 0) + METRIC + ROW
    topic = topic_with(0, app_room=own + 100).short(1)
    topic.append(b"script", b'{"name":"m","value":1}')
    assert topic.reasons()[0].startswith("limit: 1 metrics beyond the ")
    topic.append(b"other", b'{"name":"n","value":1}')
    assert topic.reasons()[0].startswith("limit: a new life beyond the ")
    assert topic.short(2).sum().count == 2
    topic.append(b"script", None)
    topic.append(b"other", b'{"name":"m","value":1}')
    assert topic.reasons() == []


def test_a_tombstone_frees_what_a_silent_script_counts_though_it_has_no_counter() -> None:
    """Its only counter was refused: there was room for the script, and none for its counter."""
    topic = topic_with(0, app_room=size_of_life("script", "default", 0) + 100)
    topic.append(b"script", b'{"name":"m","value":1}')
    assert topic.reasons()[0].startswith("limit: 1 metrics beyond the ")
    topic.append(b"script", None, at=DAY_MS)
    assert used(topic.table) == {}


def test_the_limit_of_names_and_tags_of_a_life_holds_in_every_form() -> None:
    """In OTLP and the short form as in snapshots, in one record or many, and in a table that is made of its rows."""
    rules, name = TableSettings(max_metrics=4, otlp_topics=(otlp.TOPIC,)), "n" * 500
    points = [otlp.counter(name + str(n), otlp.number(5)) for n in range(3)]
    value = otlp.encode(otlp.resource_metrics(points, service__name="shop", service__instance__id="app-1"))
    table, latest = Table(State(), rules), LatestRows()
    records = [Record(otlp.TOPIC, 0, 0, BEGIN_MS, b"k", value, BEGIN_MS)]
    for number in range(3):
        value = b'{"name":"%s%d","value":1}' % (name.encode(), number)
        records.append(Record("metrics", 0, number, BEGIN_MS, b"script", value, BEGIN_MS))
    refused = "limit: 1 metrics beyond the 1024 bytes that the names and tags of a life may have"
    changes = run(table, records)
    assert [letter.reason for letter in changes.dead] == [refused, refused]
    for row in changes.rows:
        latest.add(row.key, row.value())
    again = [one._replace(offset=5) for one in (records[0], records[-1])]
    again[0] = again[0]._replace(value=value_at(otlp.BEGIN_NS + 2 * otlp.SECOND_NS, name))
    for state in (unpack(pack(table.state)), *restore(latest).states):
        changes = run(Table(state, rules), again)
        assert [letter.reason for letter in changes.dead] == [refused, refused]


def value_at(time_ns: int, name: str) -> bytes:
    points = [otlp.counter(name + "3", otlp.number(5, time_ns=time_ns))]
    return otlp.encode(otlp.resource_metrics(points, service__name="shop", service__instance__id="app-1"))


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
        record = Record("metrics", one.partition, one.offset, one.timestamp_ms, one.key, one.value)
        for row in run(table, [record]).rows:
            rows.add(row.key, row.value())
        counted = used(table)
        assert counted.get(None, 0) <= 2 * size
        assert used(Table(unpack(pack(table.state)), rules)) == counted
        latest = LatestRows()
        latest.rows |= rows.rows
        (state,) = restore(latest).states
        assert used(Table(state, rules)) == counted


def test_a_life_that_changes_its_interval_all_the_time_is_not_kept_many_times() -> None:
    """Nor is a life that ends and goes on again and again: what is due of it is there once or twice."""
    topic = Topic()
    for seq in range(1, 5 * MIN_ADDED):
        topic.snapshot(seq=seq, every_ms=3_600_000 - seq, final=seq % 2 == 0)
    heaps = topic.table._lives._silence._heaps
    assert sum(map(len, heaps.values())) <= MIN_ADDED + 1


def test_an_instance_forgets_the_apps_that_it_has_no_lives_of() -> None:
    """Otherwise an instance with one living life and ever new apps would grow."""
    topic = Topic()
    for number in range(20):
        topic.snapshot(counter(1), app=f"app {number}")
    at = 8 * DAY_MS
    topic.snapshot(counter(1), app="new", at=at, prev=BEGIN_MS + at, life=SECOND)
    topic.append(CLOCK_KEY, clock_value(BEGIN_MS + at), at=at)
    assert list(topic.table._lives.instances._indexes["app-1"].apps) == ["new"]


def append(table: Table, value: bytes, offset: int, at: int = 0) -> None:
    run(table, [Record(otlp.TOPIC, 0, offset, BEGIN_MS + at, b"k", value, BEGIN_MS + at)])


def used(table: Table) -> dict[str | None, int]:
    """Return the bytes of each app and of all."""
    return table._lives.size._used
