"""A life's counters give the same results as a block of counts and as rows (table.layouts)."""

from __future__ import annotations

import json
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.schedules import in_steps, play_steadily, schedules, step_sizes
from support.steps import BEGIN_MS, FIRST, SECOND, Published, Topic, apply, counter, gauge, publish, records_of
from tallystream.metrics.sketch import Sketch
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, layouts
from tallystream_aggregator.table.arithmetic.values import stored
from tallystream_aggregator.table.layouts import counts_of
from tallystream_aggregator.table.rows import LifeRow
from tallystream_aggregator.table.state import Life
from tallystream_aggregator.table.sum_tags import SumTags


def content(value: bytes | None) -> object:
    """Return a row, with what the table keeps of its metrics: a block's may be written as they were in the record.

    A sketch may be divided into other runs of buckets than in the record, and lacks those that are empty.
    """
    if value is None or b'"metrics":[' not in value:
        return value
    row = msgspec.json.decode(value, type=LifeRow)
    kept = []
    for metric, found in zip(row.metrics, stored(row.metrics), strict=True):
        assert not isinstance(found, ValueError)
        values, sketch = found
        kept.append((metric.identity, values, None if sketch is None else Sketch.decode(sketch).encode()))
    return msgspec.structs.replace(row, metrics=[]), kept


def published(table: Table, records: list[Record], *, as_rows: bool) -> tuple[Published, list[object]]:
    """Run a step and return what it publishes, with the content of rows. With `as_rows`, blocks become rows between."""
    for record in records:
        apply(table, [record])
        for lives in table.state.lives.values() if as_rows else ():
            for life in lives.values():
                table._rows.blocks_to_rows(life)
    changes = publish(table)
    rows = [content(row.value()) for row in sorted(changes.rows, key=lambda row: row.key)]
    return changes._replace(rows=[]), rows


@examples(25)
@given(schedules, step_sizes, st.sampled_from([0, layouts.FEW_BLOCKS]))
@example([*[0] * 18, 879, 1563], [1], 0)  # a sketch with an empty run of buckets
@example([*[0] * 17, 1, 65, 532489], [1], 0)  # a metric of an incomplete snapshot is refused
def test_blocks_change_nothing_that_is_published(schedule: list[int], sizes: list[int], few: int) -> None:
    """A table without blocks publishes the same sums, dead letters, events and rows, also with many in a life."""
    chosen = TableSettings(short_form_every_ms=5_000, max_metrics=8)
    with_blocks, with_rows = Table(State(), chosen), Table(State(), chosen)
    for taken in in_steps(play_steadily(schedule), sizes):
        written = sorted(taken, key=lambda record: (record.partition, record.offset))
        records = records_of(written)
        with patch.object(layouts, "FEW_BLOCKS", few):
            found = published(with_blocks, records, as_rows=False)
        assert found == published(with_rows, records, as_rows=True)


LIVES = [new_ulid(BEGIN_MS + 1000 * number) for number in range(3)]
COUNTER_SETS = ["ab", "ba", "abc", "abcd", "aab", "a", "xab", ""]
"""Metrics of a snapshot: x is a gauge, and the others are counters."""
RECORDS = st.tuples(
    st.sampled_from([b"app-1", b"app-2"]),
    st.sampled_from([*range(3), None]),  # the life, or a tombstone
    st.sampled_from(COUNTER_SETS),
    st.booleans(),  # final
    st.booleans(),  # the last record of its step
)


@examples(50)
@example(
    [*[(b"app-1", 0, "ab", False, False)] * 3, (b"app-2", 0, "ab", False, False), (b"app-1", None, "", False, True)],
    10_000,
    False,
)  # the only values that are left are of a new life
@given(st.lists(RECORDS, max_size=12), st.sampled_from([3, 10_000]), st.booleans())
def test_the_first_snapshot_of_a_life_is_a_block_with_the_sums_of_rows(
    drawn: list[tuple[bytes, int | None, str, bool, bool]], max_metrics: int, shared: bool
) -> None:
    """New lives, whose instances may have others, are counted as by a table that adds each metric by itself."""
    tags = SumTags(drop=("pod",)) if shared else SumTags()
    settings = TableSettings(max_metrics=max_metrics)
    with_blocks, with_rows = Table(State(sum_tags=tags), settings), Table(State(sum_tags=tags), settings)
    with_rows._rows.add_block = lambda *_: False  # type: ignore[method-assign]
    records: list[Record] = []
    for offset, (instance, life, names, is_final, ends_step) in enumerate(drawn, 1):
        header = {"app": "shop", "part": 0, "ts": 0, "every_ms": 1000, "final": is_final, "seq": offset}
        metrics = [gauge(offset, "x") if name == "x" else counter(offset, tags={"pod": name}) for name in names]
        if life is not None:
            snapshot = json.dumps({**header, "life": LIVES[life], "metrics": metrics}).encode()
        records.append(Record("metrics", 0, offset, BEGIN_MS, instance, snapshot if life is not None else None))
        if ends_step or offset == len(drawn):
            assert published(with_blocks, records, as_rows=False) == published(with_rows, records, as_rows=False)
            assert with_blocks._rows.size._used == with_rows._rows.size._used
            records = []


def test_the_first_snapshot_of_a_life_is_a_block_at_once() -> None:
    """Its record is written as the row, and no metric is visited by itself."""
    topic = Topic().snapshot(counter(5, "a"), counter(7, "b"))
    topic.table._rows.add = None  # type: ignore[assignment, method-assign]  # no row is added
    topic.snapshot(counter(1, "a"), counter(2, "b"), key=b"app-2", life=SECOND)
    assert [(topic.sum(name).count, topic.sum(name).lives, topic.sum(name).instances) for name in "ab"] == [
        (6, 2, 2),
        (9, 2, 2),
    ]


def test_metrics_are_found_in_a_life_with_many_blocks_whatever_form_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histograms are rows after the first snapshot, and columns of the block after the second one."""
    monkeypatch.setattr(layouts, "FEW_BLOCKS", 0)
    topic, sketch = Topic(), {"scale": 5, "positive": [{"offset": 0, "counts": "AQ=="}]}
    histogram = {"name": "h", "type": "histogram", "count": 1, "sum": 1.0, "sketch": sketch}
    for seq in (1, 2):
        topic.snapshot(counter(seq, "a"), counter(seq, "b"), histogram, seq=seq)
        life, numbers = only_life(topic), topic.table.state.metrics
        assert all(topic.table._rows.layouts.row(life, number) is not None for number in numbers)
        assert len(life.rows) == (seq == 1)


def test_the_layouts_that_are_kept_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an instance whose snapshots have ever other metrics would fill the memory."""
    monkeypatch.setattr(layouts, "MAX_BYTES", 10_000)
    topic = Topic(TableSettings(max_metrics=1_000))
    for seq in range(1, 101):
        topic.snapshot(counter(seq, f"a{seq}"), counter(seq, f"b{seq}"), seq=seq, at=seq)
    assert len(topic.table._rows.layouts._layouts) <= 20


def only_life(topic: Topic) -> Life:
    """Return the only life of the table."""
    ((life,),) = [lives.values() for lives in topic.table.state.lives.values()]
    return life


NUMBERS = st.sampled_from([0, 0.0, 1, 1.0, 0.37, 50, 3])
GAUGES = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("gh"), NUMBERS, min_size=1), st.booleans()), min_size=1, max_size=8
)


@given(snapshots=GAUGES, complete=st.booleans())
@example(snapshots=[({"g": 0}, True), ({"g": 0.0}, True), ({"g": 0.37}, True)], complete=True)
@example(
    snapshots=[
        ({"g": 1, "h": 1}, True),
        ({"g": 3}, False),
        ({"g": 1, "h": 1}, False),
        ({"g": 50, "h": 1}, False),
        ({"g": 3}, True),
    ],
    complete=False,
)
def test_gauges_are_those_of_the_newest_values(
    snapshots: list[tuple[dict[str, float], bool]], *, complete: bool
) -> None:
    """Whatever came before, in steps of any size: whole numbers and equal floats, one metric or several."""
    topic, newest, records = Topic(), dict[str, float](), list[Record]()
    for seq, (values, ends_step) in enumerate(snapshots, 1):
        newest = values if complete else newest | values
        metrics = [counter(seq, "a"), *(gauge(value, name) for name, value in sorted(values.items()))]
        header = {"app": "shop", "life": FIRST, "part": 0, "ts": 0, "every_ms": 1000, "final": False}
        value = json.dumps({**header, "seq": seq, "complete": complete, "metrics": metrics}).encode()
        records.append(Record("metrics", 0, seq, BEGIN_MS, b"app-1", value, BEGIN_MS))
        if ends_step:
            run_each(topic.table, records)
    run_each(topic.table, records)
    topic.table._rows.sums.mark_changed(topic.table.state.metrics)
    totals = {total.name: total for total in topic.table.outputs().totals}
    for name in newest:
        found, expected = totals[name], newest[name]
        assert (found.sum, found.min, found.max, type(found.sum)) == (expected, expected, expected, type(expected))


def run_each(table: Table, records: list[Record]) -> None:
    """Apply each record, without compaction, and end the step."""
    for record in records:
        table.apply_record(record)
    table.outputs()
    records.clear()


def test_counters_take_eight_bytes_each() -> None:
    """After a snapshot that was accepted completely, its counters are a block, and the next one changes it in place."""
    topic = Topic().snapshot(counter(5, "a"), gauge(1.5), counter(7, "b"))
    for seq in (2, 3):
        topic.snapshot(counter(5 + seq, "a"), gauge(2.5), counter(7, "b"), seq=seq, at=seq)
        assert topic.sum("a").count == 5 + seq
        assert topic.sum("b").count == 7
        assert topic.sum("g").sum == 2.5
    life = only_life(topic)
    assert list(counts_of(life.blocks[0])) == [8, 7]
    assert [row.values for row in life.rows.values()] == [(2.5,)]


def test_a_metric_in_the_block_of_another_part_is_refused() -> None:
    """A metric belongs to the part that had it first, also if it is in a block there."""
    topic = Topic().snapshot(counter(5, "a")).snapshot(counter(6, "a"), counter(1, "b"), part=1, at=1)
    assert topic.reasons() == ["the metric was in part 0 of this life and is now in part 1"]
    topic.snapshot(counter(7, "a"), seq=2, at=2)
    assert (topic.reasons(), topic.sum("a").count) == ([], 7)


def test_a_metric_that_is_refused_again_is_not_published_again() -> None:
    """When a histogram is refused, it is published once as no longer current. Later refusals change nothing."""
    accepted, fallen = ({"type": "histogram", "name": "h", "count": count, "sum": 1.0} for count in (5, 4))
    topic = Topic().snapshot(counter(1, "a"), accepted)
    topic.snapshot(counter(2, "a"), fallen, seq=2, at=2)
    assert (topic.sum("h").count, topic.sum("h").lives) == (5, 0)
    topic.snapshot(counter(3, "a"), fallen, seq=3, at=3)
    assert topic.reasons() == ["the count fell within a life, from 5 to 4"]
    assert [total.metric[1] for total in topic.changes.totals] == ["a"]


def test_a_row_has_the_text_of_the_record_only_while_the_table_has_its_values() -> None:
    """A timer's minimum never rises within a life. So the row of the last snapshot has another one than its record."""
    topic = Topic()
    for seq, lowest in enumerate((2.0, 1.0, 3.0), start=1):
        distribution = {"type": "timer", "name": "t", "count": seq, "sum": 4.0, "min": lowest, "max": 5.0, "p50": 4.0}
        topic.snapshot(counter(seq, "a"), distribution, seq=seq, at=seq)
        row = json.loads(next(row.value() or b"" for row in topic.changes.rows if row.key.startswith(b'["life"')))
        written = next(metric for metric in row["metrics"] if metric["name"] == "t")
        assert written["min"] == min(lowest, 2.0 if seq == 1 else 1.0)
        assert written["count"] == seq
        assert ("p50" in written) == (seq == 2)  # the first one makes the block
