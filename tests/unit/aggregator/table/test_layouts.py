"""A life's counters give the same results as a block and as rows (table.layouts)."""

from __future__ import annotations

import copy
from array import array

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.schedules import RETIRE_AFTER_MS, cut, cuts, play_steadily, schedules
from support.topic import BEGIN_MS, Topic, counter, gauge
from tallystream_aggregator.table import Changes, Record, State, Table, TableSettings
from tallystream_aggregator.table.layouts import Layouts, counts_of
from tallystream_aggregator.table.state import Block, Life, MetricId, Row

NAMES = st.text(min_size=1, max_size=8) | st.sampled_from(["%", "%d", "%s", "%%"])
METRICS: st.SearchStrategy[list[MetricId]] = st.lists(
    st.tuples(
        st.just("shop"),
        NAMES,
        st.sampled_from(["counter", "counter", "gauge"]),
        st.dictionaries(NAMES, NAMES, max_size=2).map(lambda tags: tuple(sorted(tags.items()))),
    ),
    min_size=1,
    max_size=12,
    unique=True,
)


def state_with_block(metrics: list[MetricId], order: list[int], counts: list[int]) -> State:
    """Return a state with one life, whose newest snapshot had the metrics in this order."""
    life = Life("app-1", "shop", "L", "metrics:0", BEGIN_MS, 1_000, BEGIN_MS, parts={0: 7}, offsets={0: 3})
    own = [counts[number] for number in order if metrics[number][2] == "counter"]
    life.blocks[0] = Block(array("i", order).tobytes(), array("q", own).tobytes())
    life.rows = {number: Row(0, 7, (float(number),)) for number in order if metrics[number][2] == "gauge"}
    return State(metrics=metrics, lives={"app-1": [life]}, clocks={"metrics:0": BEGIN_MS}, offsets={"metrics:0": 3})


@given(METRICS, st.data())
def test_a_block_is_published_as_its_rows_would_be(metrics: list[MetricId], data: st.DataObject) -> None:
    """A life's record on `metrics-table`, its bytes, and the sums are the same for both forms, whatever the order."""
    order = data.draw(st.permutations(range(len(metrics))))
    counts = data.draw(st.lists(st.integers(0, 2**63 - 1), min_size=len(metrics), max_size=len(metrics)))
    closed = state_with_block(metrics, order, counts)
    opened = copy.deepcopy(closed)
    Layouts(opened.metrics).blocks_to_rows(opened.lives["app-1"][0])
    assert not opened.lives["app-1"][0].blocks
    one, other = Table(closed).changes(), Table(opened).changes()
    assert one.totals == other.totals
    assert [row.value(epoch=1, batch=1) for row in one.rows] == [row.value(epoch=1, batch=1) for row in other.rows]


def taken(table: Table, records: list[Record], *, opened: bool) -> tuple[Changes, list[bytes | None]]:
    """Apply a batch and return its changes, and rows as bytes. If `opened`, blocks become rows after each record."""
    table.begin_batch()
    for record in records:
        table.apply([record])
        for lives in table.state.lives.values() if opened else ():
            for life in lives:
                Layouts(table.state.metrics).blocks_to_rows(life)
    table.notice_silence()
    changes = table.changes()
    rows = [row.value(epoch=1, batch=1) for row in sorted(changes.rows, key=lambda row: row.key)]
    return changes._replace(rows=[]), rows


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedules, cuts)
@example([*[0] * 17, 1, 65, 532489], [1])  # a metric of an incomplete snapshot is refused
def test_blocks_change_nothing_that_a_batch_publishes(schedule: list[int], sizes: list[int]) -> None:
    """A table whose blocks are opened after each record publishes the same sums, letters, events and rows."""
    chosen = TableSettings(retire_after_ms=RETIRE_AFTER_MS, short_form_every_ms=5_000, max_metrics=8)
    closed, opened = Table(State(), chosen), Table(State(), chosen)
    for batch in cut(play_steadily(schedule), sizes):
        written = sorted(batch, key=lambda record: (record.partition, record.offset))
        records = [Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in written]
        assert taken(closed, records, opened=False) == taken(opened, records, opened=True)


def the_life(topic: Topic) -> Life:
    """Return the only life of the table."""
    ((life,),) = topic.table.state.lives.values()
    return life


def test_counters_take_eight_bytes_each() -> None:
    """A snapshot that was accepted whole leaves no row for a counter, and the next one changes its numbers in place."""
    topic = Topic().snapshot(counter(5, "a"), gauge(1.5), counter(7, "b"))
    for seq in (2, 3):
        topic.snapshot(counter(5 + seq, "a"), gauge(2.5), counter(7, "b"), seq=seq, at=seq)
        assert topic.sum("a").count == 5 + seq
        assert topic.sum("b").count == 7
        assert topic.sum("g").sum == 2.5
    life = the_life(topic)
    assert list(counts_of(life.blocks[0])) == [8, 7]
    assert [row.values for row in life.rows.values()] == [(2.5,)]


def test_a_lower_count_refuses_one_counter_and_the_next_accepted_snapshot_is_a_block() -> None:
    """Rule 4 holds for each counter by itself, against what is kept, also while one of them is refused again."""
    topic = Topic().snapshot(counter(5, "a"), counter(5, "b"))
    topic.snapshot(counter(4, "a"), counter(6, "b"), seq=2, at=2)
    assert topic.reasons() == ["the count fell within a life, from 5 to 4"]
    assert topic.sum("b").count == 6
    topic.snapshot(counter(4, "a"), counter(7, "b"), seq=3, at=3)
    assert topic.reasons() == ["the count fell within a life, from 5 to 4"]
    assert not the_life(topic).blocks
    topic.snapshot(counter(9, "a"), counter(8, "b"), seq=4, at=4)
    assert topic.reasons() == []
    assert (topic.sum("a").count, topic.sum("b").count) == (9, 8)
    assert list(counts_of(the_life(topic).blocks[0])) == [9, 8]


def test_a_metric_in_the_block_of_another_part_is_refused() -> None:
    """A metric belongs to the part that it came in first, whichever form it has there."""
    topic = Topic().snapshot(counter(5, "a")).snapshot(counter(6, "a"), counter(1, "b"), part=1, at=1)
    assert topic.reasons() == ["the metric was in part 0 of this life and is now in part 1"]
    topic.snapshot(counter(7, "a"), seq=2, at=2)
    assert (topic.reasons(), topic.sum("a").count) == ([], 7)


def test_a_metric_that_a_snapshot_lacks_keeps_its_count() -> None:
    """A counter that disappears stays in the sum, is no more of this moment, and comes back with a newer snapshot."""
    topic = Topic().snapshot(counter(5, "a"), counter(6, "b")).snapshot(counter(7, "b"), seq=2, at=2)
    assert (topic.sum("a").count, topic.sum("a").lives, topic.sum("b").lives) == (5, 0, 1)
    topic.snapshot(counter(6, "a"), counter(7, "b"), seq=3, at=3)
    assert (topic.sum("a").count, topic.sum("a").lives) == (6, 1)


def test_many_snapshots_of_a_life_in_one_batch_count_once() -> None:
    """Blocks that are replaced, opened and closed again within a batch, and a life that ends in it, give one sum."""
    topic = Topic().snapshot(counter(1, "a"), counter(1, "b"))
    take, topic.table.changes = topic.table.changes, lambda: topic.changes  # type: ignore[method-assign]
    topic.snapshot(counter(2, "a"), counter(1, "b"), seq=2, at=2)
    topic.snapshot(counter(3, "b"), counter(1, "a"), seq=3, at=3)
    topic.snapshot(counter(4, "a"), counter(5, "b"), seq=4, at=4)
    topic.snapshot(counter(6, "a"), counter(5, "b"), seq=5, at=5, final=True)
    topic.changes = take()
    assert topic.reasons() == ["the count fell within a life, from 2 to 1"]
    assert (topic.sum("a").count, topic.sum("b").count, topic.sum("a").lives) == (6, 5, 0)


def test_a_metric_that_is_refused_again_is_not_published_again() -> None:
    """A refused histogram stops being of this moment once; later snapshots that are refused too change nothing."""
    taken, fallen = ({"type": "histogram", "name": "h", "count": count, "sum": 1.0} for count in (5, 4))
    topic = Topic().snapshot(counter(1, "a"), taken)
    topic.snapshot(counter(2, "a"), fallen, seq=2, at=2)
    assert the_life(topic).blocks
    assert (topic.sum("h").count, topic.sum("h").lives) == (5, 0)
    topic.snapshot(counter(3, "a"), fallen, seq=3, at=3)
    assert topic.reasons() == ["the count fell within a life, from 5 to 4"]
    assert [total.metric[1] for total in topic.changes.totals] == ["a"]
