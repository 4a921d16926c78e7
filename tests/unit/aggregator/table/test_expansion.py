"""How a table counts a record that supersedes others, and when it asks for the superseded ones (expansion)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.compaction import SETTINGS, Topic, apply_or_expand, compact, counter, span_reader, table_records
from support.schedules import BEGIN_MS
from tallystream_aggregator.table import State, Table, TableSettings
from tallystream_aggregator.table.compaction import ExpansionNeededError, expand
from tallystream_aggregator.table.table import run_batch, run_expanded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.table import Changes
    from tallystream_aggregator.table.decode import Record

SECOND_LIFE = "01HF7YAT00BBBBBBBBBBBBBBBB"


def apply(records: list[Record], table: Table | None = None) -> Table:
    """Apply records as one batch, by default to a new table, and return the table."""
    table = table or Table(State(), SETTINGS)
    table.apply(records)
    table.changes()
    return table


def test_superseded_records_are_counted_in_the_state() -> None:
    """The state's numbers of records and of stale records include the superseded ones."""
    once = Topic().counts(1, 2, 3).snapshots(1, 2, 3, 4)
    state = apply(once.snapshots(1, 2, 3).records()).state
    assert (state.records, state.stale) == (10, 3)
    first = Topic().snapshots(1, 2, 3, 4).records()
    assert len(first) == 2
    state = apply([record._replace(offset=record.offset + 4) for record in first], apply(first)).state
    assert (state.records, state.stale) == (8, 4)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            Topic().snapshots(2, metrics=[counter(9)]), Topic().snapshots(3, 4, 5), id="a count falls within the life"
        ),
        pytest.param(Topic().snapshots(3), Topic().snapshots(2, 3, 4), id="some are stale"),
        pytest.param(
            Topic().snapshots(1, complete=False), Topic().snapshots(2, 3, 4), id="the life has incomplete snapshots"
        ),
        pytest.param(Topic().snapshots(1, part=1), Topic().snapshots(1, 2, 3), id="the metric was in another part"),
        pytest.param(
            Topic().counts(2**62, 2**62 - 1),
            Topic().counts(2**62 - 1, 2**62, 2**62 + 1),
            id="the sum leaves 64 bits",
        ),
        pytest.param(Topic().counts(2**63 - 1), Topic().counts(5, 6, 7), id="the sum left 64 bits before"),
    ],
)
def test_the_table_asks_for_superseded_records_that_may_be_refused_or_stale(first: Topic, second: Topic) -> None:
    """The error names the instances to expand. With all their records the state is the same as without compaction."""
    with pytest.raises(ExpansionNeededError) as refused:
        apply(second.records(), apply(table_records(first.written)))
    assert refused.value.instances == {"app-1"}
    raw = table_records(second.written)
    expanded = expand(second.records(), refused.value.instances, span_reader(raw))
    assert [record.offset for record in expanded] == [record.offset for record in raw]
    found, wanted = (apply(records, apply(table_records(first.written))) for records in (expanded, raw))
    assert found.state == wanted.state


def test_the_table_asks_for_superseded_records_that_follow_a_stale_one() -> None:
    """An earlier batch had a record with this seq and another value, so the run's first record is stale."""
    first = apply(Topic().snapshots(1, metrics=[counter(9)]).records())
    topic = Topic().counts(1)
    for seq, count in ((1, 3), (2, 4), (3, 10)):
        topic.snapshots(seq, metrics=[counter(count)])
    with pytest.raises(ExpansionNeededError):
        apply(topic.records(), first)


def test_a_rebuilt_table_asks_for_superseded_records_that_its_rows_may_include() -> None:
    """The rows include records up to an offset, so the table needs the offset of each superseded record."""
    table = Table(State(), SETTINGS)
    table.state.included = {"metrics:0": 1}
    with pytest.raises(ExpansionNeededError):
        table.apply(Topic().counts(1, 1, 1, 1).records())
    later = Topic().counts(5, 5).counts(1, 1, 1, key=b"app-2")
    table = Table(State(included={"metrics:0": 1}), SETTINGS)
    assert apply(later.records(), table).state.records == 3


def test_the_table_asks_for_superseded_records_of_a_metric_over_the_limit_of_its_life() -> None:
    """Each record of such a metric becomes a dead letter."""
    few = TableSettings(max_metrics=1)
    topic = Topic().counts(1, name="a").counts(1, 2, 3, name="b")
    table = Table(State(), few)
    with pytest.raises(ExpansionNeededError):
        table.apply(topic.records(few))


def test_expanded_records_have_the_clock_of_their_partition() -> None:
    """A superseded record of another instance moves the clock of later records, also if it is not expanded itself."""
    topic = Topic().counts(1, 1, key=b"app-2").counts(1)
    topic.add('{"name":"orders","value":1}', key=b"app-2", at=BEGIN_MS + 9_000)
    topic.counts(2, 3).counts(1, key=b"app-2")
    expanded = expand(topic.records(), {"app-1"}, span_reader(table_records(topic.written)))
    mine = [(record.offset, record.clock_ms - BEGIN_MS) for record in expanded if record.key == b"app-1"]
    assert mine == [(2, 2_000), (4, 9_000), (5, 9_000)]


def test_a_refused_record_begins_no_run() -> None:
    """This also holds if only some of its metrics are refused.

    Its seq does not show which values the table has: an earlier record with that seq may have been accepted.
    """
    topic = Topic().snapshots(1).snapshots(3, metrics=[counter(9), counter(9)])
    topic.snapshots(1, 2, 4, 5, 12)
    wanted, uncompacted = apply_or_expand(table_records(topic.written), topic)
    assert [letter.record.offset for letter in wanted.dead] == [1, 4, 5]
    assert uncompacted.state.stale == 2
    found, table = apply_or_expand(topic.records(), topic)
    assert [letter.value() for letter in found.dead] == [letter.value() for letter in wanted.dead]
    assert table.state == uncompacted.state


def test_the_table_may_ask_for_the_superseded_records_of_a_second_instance() -> None:
    """With the records of app-1, which have a second metric, the app is at its limit of metrics earlier.

    So the first record of app-2 is refused, and its records are read again, too.
    """
    few = TableSettings(max_app_metrics=2)
    one, two, other = [counter(1, "x")], [counter(1, "x"), counter(1, "y")], [counter(1, "z")]
    topic = Topic().snapshots(10, metrics=one)
    before = table_records(topic.written)
    topic.snapshots(10, metrics=two).snapshots(11, metrics=two)
    topic.snapshots(1, 2, key=b"app-2", life=SECOND_LIFE, metrics=other)
    topic.snapshots(12, metrics=two).snapshots(3, key=b"app-2", life=SECOND_LIFE, metrics=other)
    raw = table_records(topic.written)[len(before) :]
    asked: list[set[str]] = []

    states: list[State] = []

    def run(records: Sequence[Record]) -> Changes:
        table = Table(State(), few)
        states.append(table.state)
        run_batch(table, before)
        try:
            return run_batch(table, sorted(records, key=lambda record: record.offset))
        except ExpansionNeededError as needed:
            asked.append(needed.instances)
            raise

    found, wanted = run_expanded(compact(raw, few), run, span_reader(raw)), run(raw)
    assert (found.totals, found.events) == (wanted.totals, wanted.events)
    assert [letter.record.offset for letter in found.dead] == [letter.record.offset for letter in wanted.dead]
    assert (asked, states[-2]) == ([{"app-1"}, {"app-2"}], states[-1])


def test_the_table_asks_for_superseded_records_of_a_partition_whose_offsets_another_partition_has_too() -> None:
    """The instance was moved: the record that was accepted has the offset of the stale one in the other partition."""
    newest = Topic().snapshots(10).records()
    moved = [record._replace(partition=1) for record in Topic().snapshots(5, 8, 12).records()]
    assert [(record.offset, record.superseded is None) for record in (*newest, *moved)] == [
        (0, True),
        (0, True),
        (2, False),
    ]
    with pytest.raises(ExpansionNeededError):
        apply([*newest, *moved])
