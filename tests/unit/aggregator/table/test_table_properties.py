"""The table against the oracle, on random schedules: whatever instances, brokers and batches do to the records."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from support import oracle
from support.kept import Kept
from support.schedules import RETIRE_AFTER_MS, Written, cut, cuts, play, schedules, short_schedules, takes_out
from tallystream_aggregator.table import Changes, Record, State, TableSettings, storage
from tallystream_aggregator.table.arithmetic.sketches import SHARES

SETTINGS = TableSettings(retire_after_ms=RETIRE_AFTER_MS, short_form_every_ms=5_000, max_metrics=8)
slow = list(HealthCheck)
Fields = dict[str, Any]


class Run:
    """A table fed batch by batch, stored and loaded between them; gathers what a reader of the topics would."""

    def __init__(self) -> None:
        self.store = Kept()
        self.sums: dict[Any, Fields] = {}
        self.dead: Counter[tuple[int, int]] = Counter()
        self.events: Counter[tuple[str, str, str, str, int, str]] = Counter()

    def batch(self, records: list[Written]) -> Changes:
        """Apply one batch and return what it changed."""
        found = storage.load(self.store, SETTINGS)
        table = found.table
        table.begin_batch()
        in_order = sorted(records, key=lambda record: (record.partition, record.offset))
        table.apply(Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in in_order)
        table.notice_silence()
        changes = table.changes()
        found.save(self.store)
        for total in changes.totals:
            counts = {"lives": total.lives, "instances": total.instances}
            gauge = {"mean": total.mean} if "number" in total.totals else {}
            overflow = {"overflow": True} if total.overflow else {}
            # Quantiles are estimates: test_quantiles.py has them.
            exact = {name: value for name, value in total.totals.items() if name not in SHARES}
            self.sums[total.metric] = exact | gauge | counts | overflow
        self.dead.update((letter.record.partition, letter.record.offset) for letter in changes.dead)
        self.events.update((*e[:5], e.detail) for e in changes.events if e.kind != "overflow")
        return changes

    @property
    def state(self) -> State:
        """The state, as the next batch finds it."""
        return storage.load(self.store, SETTINGS).table.state


def replayed(records: list[Written]) -> oracle.Outcome:
    """Return the oracle's outcome; per partition in offset order, as the table takes them in one batch."""
    return oracle.replay(records, short_form_every_ms=5_000, max_metrics=8)


def check(schedule: list[int], sizes: list[int]) -> None:
    """Compare the table with the oracle, in these batches and in one."""
    records = play(schedule)
    wanted = replayed(records)
    for batches in (cut(records, sizes), [records]):
        run = Run()
        for batch in batches:
            run.batch(batch)
        state = run.state
        assert run.sums == wanted.sums
        assert {state.metrics[number] for number in state.overflowed} == {
            key for key, fields in run.sums.items() if "overflow" in fields
        }
        assert run.dead == wanted.dead
        assert run.events == wanted.events
        assert state.stale == wanted.stale
        assert (state.records, state.dead) == (len(records), run.dead.total())


@settings(max_examples=400, deadline=None, suppress_health_check=slow)
@given(short_schedules, cuts)
def test_the_table_equals_the_oracle_however_a_few_records_are_cut(schedule: list[int], sizes: list[int]) -> None:
    """Sums of every type, lives, retired, dead letters, events and stale counts are the oracle's, in any batches."""
    check(schedule, sizes)


@settings(max_examples=120, deadline=None, suppress_health_check=slow)
@given(schedules, cuts)
def test_the_table_equals_the_oracle_however_many_records_are_cut(schedule: list[int], sizes: list[int]) -> None:
    """As above, in schedules long enough for lives to retire, come back and be buried."""
    check(schedule, sizes)


@settings(max_examples=120, deadline=None, suppress_health_check=slow)
@given(schedules, cuts)
def test_counts_never_fall_but_by_a_tombstone_or_a_forget_record(schedule: list[int], sizes: list[int]) -> None:
    """From batch to batch no count falls, and no position, whatever restarts, retires, repeats or comes late."""
    run = Run()
    for batch in cut(play(schedule), sizes):
        before = dict(run.sums)
        run.batch(batch)
        if any(map(takes_out, batch)):
            continue
        for key, fields in run.sums.items():
            for name in ("count", "position"):
                assert (fields.get(name) or 0) >= (before.get(key, {}).get(name) or 0)


@settings(max_examples=50, deadline=None)
@given(schedules, cuts)
def test_a_batch_that_runs_again_from_its_checkpoint_says_the_same(schedule: list[int], sizes: list[int]) -> None:
    """Applied twice from the same packed state, a batch gives the same changes and the same bytes of state."""
    run = Run()
    for batch in cut(play(schedule), sizes):
        checkpoint = copy.deepcopy(run.store)
        first = run.batch(batch)
        after, run.store = run.store, checkpoint
        assert run.batch(batch) == first
        assert (run.store.entries, run.store.chunks) == (after.entries, after.chunks)  # a head is another each time


def test_the_oracle_shares_no_code_with_the_table() -> None:
    """The oracle imports the standard library only: nothing of Tallystream, no decoder of its own choice."""
    tree = ast.parse(Path(oracle.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    allowed = {
        "__future__",
        "collections",
        "collections.abc",
        "dataclasses",
        "fractions",
        "json",
        "re",
        "typing",
        "zlib",
    }
    assert imported <= allowed
