"""Which records a step applies, and which it leaves out. test_step_records.py shows that no result depends on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.schedules import BEGIN_MS
from tallystream_aggregator.stream import compaction
from tallystream_aggregator.stream.broker import Chunk, Place
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value

if TYPE_CHECKING:
    from tallystream_aggregator.stream.broker import RawRecord
    from tallystream_aggregator.table.records.decode import Message

DEFAULTS = TableSettings()
LIFE = "01HF7YAT00AAAAAAAAAAAAAAAA"
"""A life whose ULID has the time BEGIN_MS."""


class Recording(Table):
    """A table that records what it is given."""

    def __init__(self, settings: TableSettings) -> None:
        super().__init__(State(), settings)
        self.applied: list[tuple[int, int]] = []

    def apply_record(self, record: Record, records: int = 1, message: Message | None = None) -> int:
        """Record and apply it."""
        self.applied.append((record.offset, records))
        return super().apply_record(record, records, message)


@pytest.fixture(autouse=True)
def _always_search_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FEW_RECORDS", 0)


class Topic:
    """Builds the records of one partition."""

    def __init__(self) -> None:
        self.rows: list[RawRecord] = []

    def add(self, value: bytes | str | None, *, key: bytes | None = b"app-1", at: int | None = None) -> Topic:
        """Append a value. Its append time is a second after that of the record before, unless `at` is given."""
        offset = len(self.rows)
        at = BEGIN_MS + 1_000 * offset if at is None else at
        self.rows.append((offset, at, key, value.encode() if isinstance(value, str) else value))
        return self

    def counts(self, *values: int, name: str = "orders", key: bytes = b"app-1") -> Topic:
        """Append a counter's values in the short form."""
        for value in values:
            self.add(json.dumps({"name": name, "value": value}, separators=(",", ":")), key=key)
        return self

    def applied(self, settings: TableSettings = DEFAULTS) -> list[tuple[int, int]]:
        """Return the offset of each record that is applied, and how many records it stands for."""
        table = Recording(settings)
        step = StepRecords(table)
        step.add(Chunk(Place("metrics", 0), self.rows, len(self.rows)))
        step.end()
        return table.applied

    def kept(self, settings: TableSettings = DEFAULTS) -> list[int]:
        """Return the offsets of the records that are applied."""
        return sorted(offset for offset, _ in self.applied(settings))


def test_the_first_and_last_value_of_a_counter_that_never_falls_are_applied() -> None:
    """Values in between are left out, also equal ones. The last record stands for them."""
    assert Topic().counts(3, 4, 4, 9, 9).applied() == [(0, 1), (4, 4)]


def test_counters_and_instances_have_runs_of_their_own() -> None:
    """Values with another name, other tags or another key are another run.

    What waits of an instance is applied before the first record of another run of it, so its order stays.
    """
    topic = Topic().counts(1, 2, 3).counts(9, 8, name="b").counts(5, key=b"app-2")
    topic.add('{"name":"orders","value":2,"tags":{"k":"v"}}').counts(4)
    assert topic.kept() == [0, 2, 3, 4, 5, 6, 7]


def test_a_tombstone_ends_only_the_runs_of_its_instance() -> None:
    """Later records of the instance start new runs, because the table has no rows of it any more."""
    topic = Topic().counts(1, 2, 3).counts(1, 2, key=b"app-2").add(None).counts(4, 5, 6).counts(3, key=b"app-2")
    assert topic.kept() == [0, 2, 3, 5, 6, 8, 9]


@pytest.mark.parametrize(("named", "others"), [({}, []), ({"life": LIFE}, []), ({"metric": "n"}, [4])])
def test_a_forget_record_ends_the_runs_whose_rows_it_may_remove(named: dict[str, str], others: list[int]) -> None:
    """It ends the runs of its instance. If it names a metric, it ends the runs of all instances."""
    topic = Topic().counts(1, 2, 3).counts(1, 2, key=b"app-2").add(json.dumps({"forget": named}))
    topic.counts(4, 5, 6).counts(3, key=b"app-2")
    assert topic.kept() == sorted([0, 2, 3, *others, 5, 6, 8, 9])


def test_all_runs_end_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the number of runs bounds the memory. The next records begin new runs."""
    monkeypatch.setattr(compaction, "MAX_RUNS", 3)
    topic = Topic().counts(1, 2, 3).counts(1, name="b").counts(4, 5, 6)
    assert topic.kept() == [0, 2, 3, 4, 6]


def test_what_waits_is_applied_before_a_clock_record() -> None:
    """The table forgets lives at it, so it needs the newest record of each life before it. So does an invalid one."""
    for value in (clock_value(BEGIN_MS), b"{}"):
        topic = Topic().counts(1, 2, 3).add(value, key=CLOCK_KEY).counts(4, 5, 6)
        assert topic.applied() == [(0, 1), (2, 2), (3, 1), (6, 3)]
