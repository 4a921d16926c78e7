"""Instances that move: the table, the oracle and verify's replay make the same of the same records."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import oracle
from support.schedules import RETIRE_AFTER_MS, Written, cut, cuts, play, schedules, short_schedules
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.verify.compare import unequal
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay

if TYPE_CHECKING:
    import random

RULES = {"short_form_every_ms": 5_000, "max_metrics": 8, "max_app_metrics": 12}
slow = list(HealthCheck)


def moving(records: list[Written], chance: random.Random) -> list[Written]:
    """Return the records with each instance now and then in another one of three partitions."""
    homes: dict[bytes | None, int] = {}
    sizes: Counter[int] = Counter()
    out = []
    for record in records:
        home = homes.get(record.key, 0)
        homes[record.key] = home = chance.randrange(3) if chance.random() < 0.15 else home
        out.append(record._replace(partition=home, offset=sizes[home]))
        sizes[home] += 1
    return out


def check(schedule: list[int], sizes: list[int], chance: random.Random) -> None:
    """Feed the batches to all three, in the order in which the table takes them, and compare what they say."""
    table, replay = Table(State(), TableSettings(retire_after_ms=RETIRE_AFTER_MS, **RULES)), Replay(Settings(**RULES))
    records = moving(play(schedule), chance)
    newest: dict[Any, Any] = {}
    in_order: list[Written] = []
    dead: Counter[tuple[int, int]] = Counter()
    left, batches = list(records), []
    for size in [len(one) for one in cut(records, sizes)]:
        # A batch that reads one partition before another: its records may be older than those of batches before.
        chosen = left[:size] if chance.random() < 0.5 else [r for r in left if r.partition == left[0].partition][:size]
        batches.append(chosen)
        left = [record for record in left if record not in chosen]
    for batch in [*batches, left]:
        mine = sorted(batch, key=lambda record: (record.partition, record.offset))
        in_order += mine
        refused = Counter((r.partition, r.offset) for r in mine for _ in apply(replay, r))
        table.apply(Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in mine)
        table.notice_silence()
        changes = table.changes()
        letters = Counter((letter.record.partition, letter.record.offset) for letter in changes.dead)
        assert letters == refused
        dead += letters
        for total in changes.totals:
            newest[total.metric] = said = json.loads(total.value(epoch=1, batch=1))
            app, name, kind, tags = total.metric
            assert not unequal(said, replay.sum((app, kind, name, tags))), total.metric
    wanted = oracle.replay(in_order, **RULES)
    assert dead == wanted.dead
    assert table.state.stale == replay.stale == wanted.stale
    assert newest.keys() == wanted.sums.keys()
    for key, fields in wanted.sums.items():
        assert {name: newest[key].get(name) for name in fields if name not in ("lives", "instances")} == {
            name: value for name, value in fields.items() if name not in ("lives", "instances")
        }, key


def apply(replay: Replay, record: Written) -> list[str]:
    return replay.apply(f"metrics:{record.partition}", record.timestamp_ms, record.key, record.value)


@settings(max_examples=60, deadline=None, suppress_health_check=slow)
@given(short_schedules, cuts, st.randoms(use_true_random=False))
def test_all_say_the_same_of_a_few_records(schedule: list[int], sizes: list[int], chance: random.Random) -> None:
    """Limits of a life, of an app and of all, counts that fall, repeated metrics, silence: also in stale snapshots."""
    check(schedule, sizes, chance)


@settings(max_examples=15, deadline=None, suppress_health_check=slow)
@given(schedules, cuts, st.randoms(use_true_random=False))
def test_all_say_the_same_of_many_records(schedule: list[int], sizes: list[int], chance: random.Random) -> None:
    """As above, in schedules long enough for lives to move several times."""
    check(schedule, sizes, chance)
