"""Streams of OTLP: scopes, start times and times, restarts, and what removes them."""

from __future__ import annotations

import pytest

from support.otlp import BEGIN_NS, SECOND_NS, TOPIC, counter, encode, gauge, number, resource_metrics
from support.otlp_sums import APP, BEGIN_MS, apply, sums_of, verified
from support.steps import run
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.records.decode import Forget
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay

LATER_NS = BEGIN_NS + 2 * SECOND_NS


def test_streams_of_two_scopes_are_added() -> None:
    """Two libraries that count under one name are two streams: their counts are added."""
    value = encode(
        resource_metrics([counter("n", number(5))], scope="one", **APP),
        resource_metrics([counter("n", number(3))], scope="two", **APP),
    )
    assert sums_of(apply(value)) == {"counter n": {"count": 8}}
    assert verified(value)[0]["counter n"]["count"] == 8


def test_of_two_points_with_one_time_the_higher_one_counts() -> None:
    """In any order. In one resource the second one is a dead letter."""
    one, other = (resource_metrics([counter("n", number(count))], **APP) for count in (5, 9))
    both = resource_metrics([counter("n", number(5), number(9))], **APP)
    for values, letters, total in (
        ([encode(both)], 1, 5),
        ([encode(one, other)], 0, 9),
        ([encode(one), encode(other)], 0, 9),
        ([encode(other), encode(one)], 0, 9),
    ):
        changes = apply(*values)
        assert sums_of(changes) == {"counter n": {"count": total}}
        assert len(changes.dead) == letters
        found, refused = verified(*values)
        assert (found["counter n"]["count"], len(refused)) == (total, letters)


def test_points_of_a_day_ago_or_ahead_are_refused() -> None:
    """A point is refused by its own time and its record's append time: a day or more late, or more than a day early."""
    day_ns = 86_400 * SECOND_NS
    late = number(1, BEGIN_NS - 2 * day_ns, BEGIN_NS - day_ns)
    early = number(1, BEGIN_NS, BEGIN_NS + 2 * day_ns)
    began_early = number(1, BEGIN_NS + 2 * day_ns, BEGIN_NS)
    values = [encode(resource_metrics([counter("n", point)], **APP)) for point in (late, early, began_early)]
    changes = apply(*values)
    assert [letter.reason.split(";")[0] for letter in changes.dead] == [
        "too late: appended 86403000 ms after the point's time",
        "too early: the point's time is 172796000 ms ahead",
        "too early: the point's start time is 172795000 ms ahead",
    ]
    assert {letter.metric for letter in changes.dead} == {'{"name": "n", "tags": {}}'}
    assert changes.totals == []
    assert len(verified(*values)[1]) == 3


@pytest.mark.parametrize(
    "forget",
    [
        Forget(metric="m").value(),
        b'{"v":1,"forget":{"metric":"m"}}',
        b'{ "v": 1,\n "forget": {"metric": "m"} }',
        b'{"forget":{"metric":"m"}}',
    ],
)
def test_tombstones_and_forget_records_work_in_an_otlp_topic(forget: bytes) -> None:
    """`tallystream forget` writes to the partition of a life: its records are no OTLP, and are applied.

    So are those that people write, with or without a version and spaces.
    """
    value = encode(resource_metrics([counter("n", number(5)), counter("m", number(1))], **APP))
    table = Table(State(), TableSettings(otlp_topics=(TOPIC,)))
    run(table, [Record(TOPIC, 0, 0, BEGIN_MS, None, value)])
    changes = run(table, [Record(TOPIC, 0, 1, BEGIN_MS, b"app-1", forget)])
    assert changes.dead == []
    assert sums_of(changes) == {"counter m": {"count": 0}}
    changes = run(table, [Record(TOPIC, 0, 2, BEGIN_MS, b"app-1", None)])
    assert sums_of(changes) == {"counter n": {"count": 0}}
    replay = Replay(Settings(otlp_topics=(TOPIC,)))
    for key, each in ((None, value), (b"app-1", forget), (b"app-1", None)):
        assert replay.apply(f"{TOPIC}:0", BEGIN_MS, key, each) == []
    assert {fields["count"] for fields in replay.sums().values() if "count" in fields} == {0}


def test_a_stream_that_begins_while_the_sdk_collects_is_no_restart() -> None:
    """Its start is after the time of its own point, and of the points of all other streams of the process."""
    first = [counter("a", number(1))]
    second = [
        counter("a", number(2, BEGIN_NS, LATER_NS)),
        counter("c", number(1, LATER_NS + 5_000_000, LATER_NS)),
    ]
    assert apply(*(encode(resource_metrics(metrics, **APP)) for metrics in (first, second))).events == []


def test_a_restart_is_one_event_and_a_new_instrument_is_none() -> None:
    """The instruments of a process begin at several times. A stream that begins after all its points is a restart."""
    first = [counter("a", number(1, BEGIN_NS)), counter("b", number(1, BEGIN_NS + 80_000)), gauge("g", number(1, 0))]
    late = [
        counter("a", number(2, BEGIN_NS, LATER_NS)),
        counter("c", number(1, BEGIN_NS + SECOND_NS + 1, LATER_NS)),
    ]
    restarted_ns = LATER_NS + SECOND_NS
    restarted = [
        gauge("g", number(1, 0, restarted_ns + SECOND_NS)),
        counter("b", number(1, restarted_ns + 80_000, restarted_ns + SECOND_NS)),
        counter("a", number(1, restarted_ns, restarted_ns + SECOND_NS)),
    ]
    changes = apply(*(encode(resource_metrics(metrics, **APP)) for metrics in (first, late)))
    assert changes.events == []
    changes = apply(*(encode(resource_metrics(metrics, **APP)) for metrics in (first, late, restarted)))
    assert [event.kind for event in changes.events] == ["restart"]
    assert sums_of(changes)["counter a"] == {"count": 3}
