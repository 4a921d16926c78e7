"""OTLP metrics through the table: the sums are what the applications counted, whatever the Collector does."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.otlp import SECOND_NS, TOPIC, Appended, Fleet
from support.replayed import TopicRecord
from support.steps import Published, run
from support.tables import Tables, divide
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay

SETTINGS = TableSettings(otlp_topics=(TOPIC,))


def record_of(one: Appended) -> Record:
    return Record(TOPIC, one.partition, one.offset, one.timestamp_ms, one.key, one.value)


def in_steps(records: list[Appended], size: int) -> list[Published]:
    """Run the records in steps of this size, in one shard."""
    table = Table(State(), SETTINGS)
    return [run(table, map(record_of, records[first : first + size])) for first in range(0, len(records), size)]


def counts(changes: list[Published]) -> dict[tuple[str, str], Any]:
    """Return the newest counts by name and topic."""
    return {
        (total.metric[1], dict(total.metric[3])["topic"]): total.count
        for step in changes
        for total in step.totals
        if total.metric[2] == "counter"
    }


@examples(30)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1, 3, 10, 1000]))
def test_sums_are_what_the_applications_counted(seed: int, size: int) -> None:
    """Duplicated, divided, delayed and shuffled OTLP batches change nothing; verify's own reader says the same."""
    fleet = Fleet(seed)
    for _ in range(60):
        fleet.step()
    fleet.end()
    changes = in_steps(fleet.records, size)
    assert counts(changes) == fleet.counted
    assert [letter.reason for step in changes for letter in step.dead] == []
    replay = Replay(Settings(otlp_topics=(TOPIC,)))
    for one in sorted(fleet.records, key=lambda one: (one.partition, one.offset)):
        assert replay.apply(f"{TOPIC}:{one.partition}", one.timestamp_ms, one.key, one.value) == []
    found = {
        (name, dict(tags)["topic"]): fields["count"]
        for (_, kind, name, tags), fields in replay.sums().items()
        if kind == "counter"
    }
    assert found == fleet.counted


@examples(10)
@given(seed=st.integers(0, 2**32), shards=st.sampled_from([1, 3]))
def test_tables_that_begin_again_change_no_sum(seed: int, shards: int) -> None:
    """Streams fall silent and go on; their lives stay incomplete."""
    chance, fleet = random.Random(seed), Fleet(seed)
    for step in range(80):
        fleet.now_ns += 3600 * SECOND_NS * (step % 10 == 9)
        fleet.step()
    fleet.end()
    records = [TopicRecord(one.key, one.value, one.timestamp_ms, one.partition, one.offset) for one in fleet.records]
    tables = Tables(records, TableSettings(otlp_topics=("metrics",)), shards, chance)
    for ends in divide(records, [chance.randint(1, 9) for _ in range(5)]):
        if chance.random() < 0.2:
            tables.begin_again(from_rows=chance.random() < 0.5)
        tables.step(ends)
    lives = [life for state in tables.states for known in state.lives.values() for life in known.values()]
    assert {life.complete for life in lives} == {False}
    for sums in (tables.sums, tables.all_sums()):
        found = {
            (name, dict(tags)["topic"]): fields["count"]
            for (_, name, kind, tags), fields in sums.items()
            if kind == "counter"
        }
        assert found == fleet.counted
    assert not tables.dead
