"""Incomplete snapshots: each metric has a seq of its own, and a metric that a snapshot lacks stays current."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from support import otlp
from support.steps import BEGIN_MS, Topic, counter, gauge, run
from support.work import lines_run
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, lives, pack, unpack
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value
from tallystream_aggregator.times import DAY_MS
from tallystream_aggregator.verify.replay import Replay


def test_each_metric_takes_its_highest_seq_in_any_order() -> None:
    """Snapshots with some of the metrics arrive with equal seqs and out of order. Each metric has its newest value."""
    topic = Topic()
    with topic.one_step():
        for seq, counts in ((5, {"a": 50}), (5, {"b": 7}), (4, {"b": 6, "c": 1}), (3, {"a": 30}), (6, {"c": 2})):
            topic.snapshot(*(counter(count, name) for name, count in counts.items()), seq=seq, complete=False)
    assert {total.name: total.count for total in topic.changes.totals} == {"a": 50, "b": 7, "c": 2}
    assert topic.reasons() == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_gauge_that_changes_with_others_and_then_alone_has_its_newest_value(number: int) -> None:
    """Also if both happen in one step: the highest value is that of the newest ones, not the one between."""
    topic, names = Topic(), ("a", "b")[:number]
    topic.snapshot(gauge(7, "a"), key=b"app-2", seq=1, complete=False)
    topic.snapshot(*(gauge(10, name) for name in names), counter(1), counter(1, "m"), seq=1, complete=False)
    with topic.one_step():
        topic.snapshot(*(gauge(30, name) for name in names), counter(2), counter(2, "m"), seq=2, complete=False)
        topic.snapshot(gauge(5, "a"), seq=3, complete=False)
    found = topic.sum("a")
    assert (found.sum, found.min, found.max) == (12, 5, 7)


def otlp_record(offset: int, time_ns: int, *streams: tuple[str, int]) -> Record:
    """Return a record with a point of each stream, given by its name and its start time."""
    metrics = [otlp.counter(name, otlp.number(1, start_ns, time_ns)) for name, start_ns in streams]
    value = otlp.encode(otlp.resource_metrics(metrics, service__name="shop", service__instance__id="app-1"))
    return Record(otlp.TOPIC, 0, offset, time_ns // 1_000_000, None, value)


def otlp_table() -> Table:
    return Table(State(), TableSettings(otlp_topics=(otlp.TOPIC,)))


@pytest.mark.parametrize(("begin_s", "restarts"), [(1800, 0), (3601, 1)])
def test_a_new_stream_is_a_restart_if_it_begins_after_all_points(begin_s: int, restarts: int) -> None:
    """Also if the earlier streams of its instance are silent."""
    hour_ns = 3600 * otlp.SECOND_NS
    first, second = otlp.BEGIN_NS + hour_ns, otlp.BEGIN_NS + 2 * hour_ns
    table = otlp_table()
    run(table, [otlp_record(0, first, ("a", otlp.BEGIN_NS))])
    run(table, [Record(otlp.TOPIC, 0, 1, second // 1_000_000, b"other", None)])
    changes = run(table, [otlp_record(2, second + 1, ("b", otlp.BEGIN_NS + begin_s * otlp.SECOND_NS))])
    assert [event.kind for event in changes.events] == ["restart"] * restarts


@pytest.mark.parametrize("begins_complete", [True, False])
def test_a_life_of_the_other_form_is_a_restart(*, begins_complete: bool) -> None:
    """An instance that changes between a reporter with complete snapshots and one with incomplete ones."""
    topic = Topic()
    for number, complete in enumerate((begins_complete, not begins_complete)):
        begin_ms = BEGIN_MS + number
        topic.snapshot(counter(1), life=new_ulid(begin_ms), seq=begin_ms * 1_000_000 + 1, complete=complete, at=number)
    assert topic.kinds() == ["restart"]


@pytest.mark.parametrize(("early_ns", "restarts"), [(0, 1), (1, 0), (60 * 10**9 - 1, 0), (60 * 10**9, 1)])
def test_a_stream_may_begin_up_to_a_minute_after_its_first_point(early_ns: int, restarts: int) -> None:
    """It then began at that point, here not after the last one of the other stream. Verify says the same."""
    topic, replay, later_ms = Topic(), Replay(), BEGIN_MS + 100_000
    for begin_ms, seq in ((BEGIN_MS, later_ms * 10**6 - 1), (later_ms, later_ms * 10**6 - early_ns)):
        life = {"life": new_ulid(begin_ms), "seq": seq, "prev": BEGIN_MS, "complete": False}
        topic.snapshot(counter(1), at=100_000, **life)
        header = {"app": "shop", "part": 0, "ts": 0, "every_ms": 1000, "final": False, "metrics": [counter(1)]}
        assert replay.apply("metrics:0", later_ms, b"app-1", json.dumps(header | life).encode()) == []
    assert topic.kinds() == ["restart"] * restarts
    assert [event[0] for event in replay.noted.events] == ["restart"] * restarts


@pytest.mark.parametrize("few", [0, 100])
def test_a_stream_after_all_others_are_forgotten_is_no_restart(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one beside a counter of the short form, which has no begin and is never forgotten."""
    monkeypatch.setattr(lives, "FEW_LIVES", few)
    topic = Topic().append(b"app-1", b'{"name":"short","value":1}')
    for at in (0, 8 * DAY_MS):
        topic.append(CLOCK_KEY, clock_value(BEGIN_MS + at), at)
        begin_ms = BEGIN_MS + at
        life = {"life": new_ulid(begin_ms), "seq": begin_ms * 1_000_000 + 1, "prev": begin_ms, "complete": False}
        topic.snapshot(counter(1), app="default", at=at, **life)
        assert topic.kinds() == []
    assert topic.table.state.forgotten == 1


def test_the_first_counter_of_an_instance_with_gauges_is_no_restart() -> None:
    """Gauges have no start."""
    table = otlp_table()
    metric = otlp.gauge("g", otlp.number(1, 0))
    value = otlp.encode(otlp.resource_metrics([metric], service__name="shop", service__instance__id="app-1"))
    run(table, [Record(otlp.TOPIC, 0, 0, BEGIN_MS, None, value)])
    run(table, [Record(otlp.TOPIC, 0, 1, BEGIN_MS + 10**7, b"other", None)])
    begin_ns = otlp.BEGIN_NS + 10**4 * otlp.SECOND_NS
    assert run(table, [otlp_record(2, begin_ns + 1, ("a", begin_ns))]).events == []


def test_many_lives_of_an_instance_cost_about_as_much_as_one() -> None:
    """Some SDKs give each stream a start time of its own: 300 lives of a process do not cost their square.

    This holds when they begin, continue, are read from the stored state and fall silent.
    """

    def steps(starts_ns: Iterable[int]) -> None:
        streams, table = [(f"n{place}", start_ns) for place, start_ns in enumerate(starts_ns)], otlp_table()
        for offset in range(2):
            changes = run(table, [otlp_record(offset, otlp.BEGIN_NS + (1 + offset) * otlp.SECOND_NS, *streams)])
            assert {total.instances for total in changes.totals} == {1}
            table = Table(unpack(pack(table.state)), table.settings)
        silent = run(table, [Record(otlp.TOPIC, 0, 2, BEGIN_MS + 10**6, b"x", None)])
        assert {total.instances for total in silent.totals} == {0}

    one = lines_run(lambda: steps([otlp.BEGIN_NS] * 300))
    assert lines_run(lambda: steps(range(otlp.BEGIN_NS, otlp.BEGIN_NS + 300))) < 5 * one
