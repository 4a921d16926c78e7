"""Verify agrees with the table on random schedules: in batches, shards and splits, and after lost checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.batches import MODES, batches_of
from support.clock_schedules import clock_schedules, play
from support.fuzz import examples
from support.runs import random_settings
from support.tables import Tables
from tallystream_aggregator.verify.check import Check, Outcome
from tallystream_aggregator.verify.decode import RawRecord
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import parse
from tallystream_aggregator.verify.replay import Replay

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

    from support.programs import Played
    from support.schedules import TopicRecord
    from tallystream_aggregator.verify.published import Batch

choices = st.randoms(use_true_random=False)


def verify(
    records: Sequence[TopicRecord],
    tables: Tables,
    batches: Sequence[Batch],
    dead: Iterable[tuple[int, int]] | None = None,
) -> Outcome:
    """Check all rows of these tables, and that the newest row of each metric includes all records.

    `dead` are the partitions and offsets of dead letters. They are not compared if it is None.
    """
    by_partition: dict[str, list[RawRecord]] = {}
    for r in records:
        record = RawRecord(r.offset, r.timestamp_ms, r.key, r.value)
        by_partition.setdefault(f"metrics:{r.partition}", []).append(record)
    read = dict.fromkeys(by_partition, 0)

    def until(partition: str, end: int) -> Iterator[RawRecord]:
        begin = read.get(partition, 0)
        read[partition] = max(begin, end)
        yield from by_partition.get(partition, [])[begin:end]

    published = [parse(key, value) for key, value in tables.rows]
    newest = {row.identity: row for row in sorted(published, key=lambda row: row.version)}
    end = batches[-1].end if batches else None
    letters = None if dead is None else {(f"metrics:{partition}", offset) for partition, offset in dead}
    check = Check(
        Replay(Settings(forget_after_ms=tables.settings.forget_after_ms)),
        dict.fromkeys(by_partition, 0),
        end,
        until,
        batches=batches,
        letters=letters,
    )
    return check.run(published, newest, set(), {partition: len(found) for partition, found in by_partition.items()})


def run(
    schedule: list[int], mode: str, shards: int, chance: random.Random, *, broken: float, splits: bool = False
) -> tuple[Played, Tables]:
    """Run a schedule. Before a share `broken` of the batches, a checkpoint is lost or a writer replaced.

    With `splits`, a rebuilt table is sometimes split into more shards, too. Nothing breaks in a schedule that forgets a
    metric: a sum between the forget records of two partitions may lack what a lost table had forgotten of both.
    """
    played = play(schedule)
    forgets_metric = any(b'"forget": {"metric"' in (record.value or b"") for record in played.records)
    settings = random_settings(played, chance)
    tables = Tables(played.records, settings, 1 if forgets_metric else shards, chance, strict=True)
    for batch in batches_of(played, mode, chance):
        while tables.has_read and not forgets_metric and chance.random() < broken:
            if chance.random() < 0.5:
                tables.batch(batch, written=chance)
            if chance.random() < 0.3:
                tables.take_over()
            else:
                tables.rebuild(chance.choice([0, 0, 1, 2]) if splits and tables.shards < 6 else 0)
        tables.batch(batch)
    return played, tables


@pytest.mark.parametrize("mode", MODES)
@examples(15)
@given(clock_schedules, st.integers(1, 6), choices)
def test_verify_agrees_with_the_table(mode: str, schedule: list[int], shards: int, chance: random.Random) -> None:
    """Every published sum equals the replay's in every field, with its living and its forgotten lives."""
    played, tables = run(schedule, mode, shards, chance, broken=0)
    outcome = verify(played.records, tables, tables.ledger, tables.dead)
    assert (outcome.differences, outcome.unordered, outcome.lost_letters) == ([], 0, 0)
    assert outcome.sums == len(tables.rows)


@pytest.mark.parametrize("mode", MODES)
@examples(15)
@given(clock_schedules, st.integers(1, 6), choices)
def test_verify_agrees_after_lost_checkpoints_and_splits_into_more_shards(
    mode: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """A value that is unknown after a crash is not a difference, nor are dead letters that a crashed batch lost."""
    played, tables = run(schedule, mode, shards, chance, broken=0.1, splits=True)
    assert verify(played.records, tables, tables.ledger, tables.dead).differences == []


@pytest.mark.parametrize("mode", MODES)
@examples(15)
@given(clock_schedules, st.integers(1, 6), choices)
def test_verify_agrees_after_lost_checkpoints_and_with_lost_rows_of_the_ledger(
    mode: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """The offsets of a sum say what it includes."""
    played, tables = run(schedule, mode, shards, chance, broken=0.1)
    ledger = [row for row in tables.ledger if row.begins or chance.random() < 0.9]
    assert verify(played.records, tables, ledger).differences == []


def with_gaps(ledger: Sequence[Batch], chance: random.Random) -> list[Batch]:
    """Return the batches without runs of several, as if Spark had deleted their offsets.

    Each table keeps its first batch. The last batch stays, since a gap of the ledger ends with a row.
    """
    left: list[Batch] = []
    first: Batch | None = None  # of a run that is left out
    for row in ledger:
        first = None if row.begins else first
        if chance.random() < 0.4 and row is not ledger[-1] and not row.begins:
            first = first or row
            continue
        left.append(row if first is None else row._replace(start=first.start, follows_gap=True))
        first = None
    return left


@pytest.mark.parametrize("mode", MODES)
@examples(15)
@given(clock_schedules, st.integers(1, 6), choices)
def test_verify_agrees_with_gaps_of_the_ledger(
    mode: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """The offsets of a sum say what it includes, if no checkpoint was lost (docs/verify.md)."""
    played, tables = run(schedule, mode, shards, chance, broken=0)
    assert verify(played.records, tables, with_gaps(tables.ledger, chance)).differences == []
