"""OTLP metrics through the table: the sums are what the applications counted, whatever the Collector does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.batches import Batch, divide
from support.fuzz import examples
from support.otlp import SECOND_NS, TOPIC, Appended, Fleet
from support.schedules import TopicRecord
from support.tables import Tables
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.shards import shards_of
from tallystream_aggregator.table.table import Changes, run_batch
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay

SETTINGS = TableSettings(otlp_topics=(TOPIC,))


def record_of(one: Appended) -> Record:
    return Record(TOPIC, one.partition, one.offset, one.timestamp_ms, one.key, one.value)


def run(records: list[Appended], size: int) -> tuple[Table, list[Changes]]:
    """Run the records in batches of this size, in one shard."""
    table = Table(State(), SETTINGS)
    batches = [records[first : first + size] for first in range(0, len(records), size)]
    return table, [run_batch(table, [record_of(one) for one in batch]) for batch in batches]


def counts(changes: list[Changes]) -> dict[tuple[str, str], Any]:
    """Return the newest counts by name and topic."""
    return {
        (total.metric[1], dict(total.metric[3])["topic"]): total.totals["count"]
        for batch in changes
        for total in batch.totals
        if total.metric[2] == "counter"
    }


@examples(30)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1, 3, 10, 1000]))
def test_sums_are_what_the_applications_counted(seed: int, size: int) -> None:
    """Duplicated, divided, delayed and shuffled batches change nothing; verify's own reader says the same."""
    fleet = Fleet(seed)
    for _ in range(60):
        fleet.step()
    fleet.end()
    _, changes = run(fleet.records, size)
    assert counts(changes) == fleet.counted
    assert [letter.reason for batch in changes for letter in batch.dead] == []
    replay = Replay(Settings(otlp_topics=(TOPIC,)))
    for one in sorted(fleet.records, key=lambda one: (one.partition, one.offset)):
        assert replay.apply(f"{TOPIC}:{one.partition}", one.timestamp_ms, one.key, one.value) == []
    found = {
        (identity[2], dict(identity[3])["topic"]): replay.sum(identity)["count"]
        for identity in replay.identities()
        if identity[1] == "counter"
    }
    assert found == fleet.counted


@pytest.mark.parametrize("shards", [2, 5])
def test_shards_divide_the_instances_of_a_record(shards: int) -> None:
    """A record goes to each shard of its instances; each shard counts its own ones, and together they are all."""
    fleet = Fleet(7, instances=6)
    for _ in range(200):
        fleet.step()
    fleet.end()
    total: dict[tuple[str, str], int] = {}
    for shard in range(shards):
        table = Table(State(shard=shard, shards=shards), SETTINGS)
        mine = [record_of(one) for one in fleet.records if shard in shards_of(record_of(one), shards, (TOPIC,))]
        run_batch(table, mine)
        for metric, row in zip(table.state.metrics, table.shard_sums(range(len(table.state.metrics))), strict=True):
            if metric[2] == "counter":
                at = metric[1], dict(metric[3])["topic"]
                total[at] = total.get(at, 0) + int(row.partial().totals()["count"] or 0)
    assert total == fleet.counted


@examples(10)
@given(seed=st.integers(0, 2**32), shards=st.sampled_from([1, 3]))
@example(seed=720833914, shards=1)  # a rebuild comes after the last batch that has records
def test_crashes_rebuilds_and_splits_change_no_sum(seed: int, shards: int) -> None:
    """Streams fall silent and go on; their lives stay incomplete."""
    chance, fleet = random.Random(seed), Fleet(seed)
    for step in range(80):
        fleet.now_ns += 3600 * SECOND_NS * (step % 10 == 9)
        fleet.step()
    fleet.end()
    records = [TopicRecord(one.key, one.value, one.timestamp_ms, one.partition, one.offset) for one in fleet.records]
    tables = Tables(records, TableSettings(otlp_topics=("metrics",)), shards, chance)
    for batch in divide(records, [chance.randint(1, 9) for _ in range(5)]):
        event = chance.random()
        if event < 0.1:
            tables.batch(batch, written=chance)
        if event < 0.2:
            tables.rebuild(chance.choice([0, 0, 1]), behind=chance.random() < 0.3)
        tables.batch(batch)
    ends = {record.partition: record.offset + 1 for record in records}
    tables.batch(Batch(ends, all_read=True))  # after a rebuild, the aggregator wakes up all shards
    lives = [life for state in tables.states for known in state.lives.values() for life in known]
    assert {life.complete for life in lives} == {False}
    found = {
        (name, dict(tags)["topic"]): fields["count"]
        for (_, name, kind, tags), fields in tables.sums.items()
        if kind == "counter"
    }
    assert found == fleet.counted
    assert not tables.dead
