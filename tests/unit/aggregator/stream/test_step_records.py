"""A step that leaves out superseded records gives what the same records give one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.replayed import TopicRecord
from support.runs import jump
from support.schedules import (
    BEGIN_MS,
    LONG,
    in_steps,
    jumps,
    play,
    play_steadily,
    schedules,
    short_schedules,
    step_sizes,
)
from support.steps import chunks_of, records_of
from tallystream.record import MAX_COUNT
from tallystream_aggregator.stream import compaction
from tallystream_aggregator.stream.broker import Chunk
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.table import Changes, Record, State, Table, TableSettings
from tallystream_aggregator.table.records.decode import CLOCK_KEY, Message, clock_value

SMALL = TableSettings(short_form_every_ms=5_000, max_metrics=8)


class Applied:
    """A table to which steps are applied. `applied` counts the records that the table was given."""

    def __init__(self, shard: int = 0, shards: int = 1) -> None:
        self.table = Table(State(shard=shard, shards=shards), SMALL)
        self.applied = 0
        self._apply = self.table.apply_record
        self.table.apply_record = self._counted  # type: ignore[method-assign]

    def _counted(self, record: Record, records: int = 1, message: Message | None = None) -> int:
        self.applied += 1
        return self._apply(record, records, message)

    def step(self, chunks: Iterable[Chunk]) -> Any:
        """Apply the chunks of a step, and return what it gives, without the order of letters and events."""
        step = StepRecords(self.table)
        for chunk in chunks:
            step.add(chunk)
        step.end()
        return self.results()

    def results(self) -> Any:
        """Return sums, dead letters, events, rows and the state."""
        changes = self.table.outputs()
        rows = {row.key: row.value() for row in self.table.rows()}
        state = msgspec.structs.asdict(self.table.state)
        lives = [life for of_instance in state.pop("lives").values() for life in of_instance.values()]
        state["lives"] = sorted(lives, key=lambda life: life.id)
        return (
            comparable(changes),
            rows,
            {name: msgspec.to_builtins(part, str_keys=True) for name, part in state.items()},
        )


def comparable(changes: Changes) -> Any:
    letters = Counter((letter.key(), letter.value()) for letter in changes.dead)
    return changes.totals, letters, Counter(changes.events)


def in_reads(records: list[TopicRecord], most: int) -> list[Chunk]:
    """Return chunks of so many records, partition by partition."""
    found: list[Chunk] = []
    for place, rows, _, _ in chunks_of(records_of(records)):
        reads = [rows[at : at + most] for at in range(0, len(rows), most)]
        found += [Chunk(place, read, read[-1][0] + 1) for read in reads]
    return found


def one_by_one(records: list[TopicRecord]) -> list[Chunk]:
    """Return a chunk for each record, partition by partition."""
    return in_reads(records, 1)


@pytest.fixture(autouse=True)
def _always_compact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FEW_RECORDS", 1)


@examples(150)
@example(LONG, [40], play, [0], 3)
@example(LONG, [40], play_steadily, [0, 25], 8)
@given(
    short_schedules | schedules,
    step_sizes | st.just([40]),
    st.sampled_from([play, play_steadily]),
    jumps,
    st.integers(1, 8),
)
def test_leaving_out_superseded_records_changes_no_result(
    schedule: list[int], sizes: list[int], played: Callable[[list[int]], list[TopicRecord]], hours: list[int], read: int
) -> None:
    """Totals, dead letters, events with their offsets, rows and state are the same after every step.

    A step may read a partition several times, a few records at a time.
    """
    records = jump(played(schedule), hours)
    compacted, plain = Applied(), Applied()
    for step in in_steps(records, sizes):
        # Both read the partitions in the same order.
        assert compacted.step(in_reads(step, read)) == plain.step(in_reads(step, 1))


@examples(60)
@example(LONG, [40], [0, 25], 1)
@given(schedules, step_sizes | st.just([40]), jumps, st.integers(0, 2))
def test_a_shard_reads_every_record_and_applies_its_own(
    schedule: list[int], sizes: list[int], hours: list[int], shard: int
) -> None:
    """Its clocks and positions are those of all records, whichever shard they are of."""
    records = jump(play_steadily(schedule), hours)
    compacted, plain = Applied(shard, 3), Applied(shard, 3)
    for step in in_steps(records, sizes):
        compacted.step(chunks_of(records_of(step)))
        plain.step(one_by_one(step))
    assert compacted.results() == plain.results()
    tops = {
        f"metrics:{r.partition}": max(x.timestamp_ms for x in records if x.partition == r.partition) for r in records
    }
    assert compacted.table.state.clocks == tops


def short_forms(*values: int, names: str = "") -> list[TopicRecord]:
    """Return values of the counter `n`, or of counters with these names, in the short form."""
    rows = zip_longest(names, values, fillvalue="n")
    return [
        TopicRecord(b"app-1", b'{"name":"%s","value":%d}' % (str(name).encode(), value), BEGIN_MS, 0, offset)
        for offset, (name, value) in enumerate(rows)
    ]


def test_the_first_and_last_value_of_a_counter_that_never_falls_are_applied() -> None:
    """Values in between are left out, also equal ones."""
    applied = Applied()
    applied.step(chunks_of(records_of(short_forms(3, 4, 4, 9, 9))))
    assert (applied.applied, applied.table.state.records) == (2, 5)


@pytest.mark.parametrize(
    ("key", "value", "applied"),
    [
        (b"app-1", None, 7),
        (b"app-1", b'{"forget":{}}', 7),
        (b"app-1", b'{"forget":{"life":"01HF7YAT00AAAAAAAAAAAAAAAA"}}', 7),
        (b"app-1", b'{"forget":{"metric":"n"}}', 8),
        (CLOCK_KEY, clock_value(BEGIN_MS), 7),
        (CLOCK_KEY, b'{"name":"n","value":5}', 7),
    ],
)
def test_a_record_that_may_remove_rows_ends_the_runs_of_them(key: bytes, value: bytes | None, applied: int) -> None:
    """Those of its instance, or of all if it names a metric. What waits is applied before it, and at a clock record.

    The next value of a counter is applied, because the table may have no row of it any more.
    """
    before, after = short_forms(1, 2, 3), short_forms(4, 5, 6)
    other = [one._replace(key=b"app-2") for one in short_forms(1, 2, 3)]
    removal = TopicRecord(key, value, BEGIN_MS, 0, 0)
    found = Applied()
    records = [one._replace(offset=n) for n, one in enumerate([*before, *other[:2], removal, *after, other[2]])]
    assert found.step(chunks_of(records_of(records))) == Applied().step(one_by_one(records))
    assert found.applied == applied


def test_counters_with_other_tags_supersede_each_other_in_no_run() -> None:
    """Nor does one without tags."""
    applied = Applied()
    tags = [b"", b',"tags":{"k":"a"}', b',"tags":{"k":"b"}']
    records = [
        TopicRecord(b"app-1", b'{"name":"n","value":%d%s}' % (value, of), BEGIN_MS, 0, 3 * value + number)
        for value in (1, 2, 3)
        for number, of in enumerate(tags)
    ]
    applied.step(chunks_of(records_of(records)))
    (life,) = applied.table.state.lives["app-1"].values()
    assert [row.values for row in life.rows.values()] == [(3, 3)] * 3


def test_each_record_with_a_key_that_is_no_instance_is_a_dead_letter() -> None:
    """None of them is superseded by a later one."""
    applied = Applied()
    records = [one._replace(key=b"\xff") for one in short_forms(1, 2, 3)]
    (_, letters, _), _, _ = applied.step(chunks_of(records_of(records)))
    assert letters.total() == 3


def test_all_runs_end_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the number of runs bounds the memory. The next records begin new runs."""
    monkeypatch.setattr(compaction, "MAX_RUNS", 3)
    applied = Applied()
    applied.step(chunks_of(records_of(short_forms(1, 2, 3, 1, 4, 5, 6, names="aaabaaa"))))
    assert applied.applied == 5


def test_a_restart_whose_total_leaves_64_bits_is_refused_record_by_record() -> None:
    """A run ends where the sum over restarts would leave 64 bits: each refused record is a dead letter of its own."""
    applied = Applied()
    records = short_forms(MAX_COUNT - 10, 3, 5, 9, 20, 30, 8, 12)
    (totals, letters, _), _, _ = applied.step(chunks_of(records_of(records)))
    plain = Applied()
    assert comparable_of(plain, records) == (totals, letters)
    assert letters.total() == 4


def test_records_that_wait_are_applied_in_their_order() -> None:
    """The last one says when the instance was last seen, whichever counter began to wait first."""
    names = "abababa"
    records = [
        TopicRecord(b"app-1", b'{"name":"%s","value":%d}' % (name.encode(), n), BEGIN_MS + n, 0, n)
        for n, name in enumerate(names)
    ]
    compacted, plain = Applied(), Applied()
    assert compacted.step(chunks_of(records_of(records))) == plain.step(one_by_one(records))
    assert compacted.applied < plain.applied


def comparable_of(applied: Applied, records: list[TopicRecord]) -> Any:
    (totals, letters, _), _, _ = applied.step(one_by_one(records))
    return totals, letters
