"""The replay against the table, on random schedules: two implementations of the same rules that share no code."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings

from support.schedules import RETIRE_AFTER_MS, Written, cut, cuts, play, schedules, short_schedules
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.verify.compare import unequal
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay

RULES = {"short_form_every_ms": 5_000, "max_metrics": 8, "max_app_metrics": 12}
slow = list(HealthCheck)


def check(schedule: list[int], sizes: list[int]) -> None:
    """Feed both, batch by batch: after each, all sums that the table published, and at the end all that there are."""
    table, replay = Table(State(), TableSettings(retire_after_ms=RETIRE_AFTER_MS, **RULES)), Replay(Settings(**RULES))
    newest: dict[Any, Any] = {}
    for batch in cut(play(schedule), sizes):
        in_order = sorted(batch, key=lambda record: (record.partition, record.offset))
        refused = [(r.partition, r.offset) for r in in_order for _ in apply(replay, r)]
        table.apply(Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in in_order)
        table.notice_silence()
        changes = table.changes()
        assert [(letter.record.partition, letter.record.offset) for letter in changes.dead] == refused
        for total in changes.totals:
            app, kind, name, tags = json.loads(total.key())
            identity = (app, kind, name, tuple(map(tuple, tags)))
            newest[identity] = json.loads(total.value(epoch=1, batch=1))
            assert not unequal(newest[identity], replay.sum(identity)), identity
    assert replay.stale == table.state.stale
    for identity in {*replay.identities(), *newest}:
        assert identity in newest, identity
        assert not unequal(newest[identity], replay.sum(identity)), identity


def apply(replay: Replay, record: Written) -> list[str]:
    return replay.apply(f"metrics:{record.partition}", record.timestamp_ms, record.key, record.value)


@settings(max_examples=300, deadline=None, suppress_health_check=slow)
@given(short_schedules, cuts)
def test_the_replay_equals_the_table_after_a_few_records(schedule: list[int], sizes: list[int]) -> None:
    """Every published sum, every dead letter and the stale count are the replay's, in any cut into batches."""
    check(schedule, sizes)


@settings(max_examples=120, deadline=None, suppress_health_check=slow)
@given(schedules, cuts)
def test_the_replay_equals_the_table_after_many_records(schedule: list[int], sizes: list[int]) -> None:
    """As above, in schedules long enough for lives to retire, come back and be buried."""
    check(schedule, sizes)
