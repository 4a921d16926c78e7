"""Rule 5 in verify: when the batches of the ledger noticed silence, and when that can't be known."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.batches import DAY_MS, HOUR_MS, MODES, batches_of
from support.batches import Batch as Planned
from support.clock_schedules import clock_schedules, play
from support.fuzz import examples
from support.programs import Appended
from support.schedules import BEGIN_MS, TopicRecord
from support.tables import Tables, table_settings
from tallystream_aggregator.verify.check import Check, Outcome
from tallystream_aggregator.verify.decode import RawRecord
from tallystream_aggregator.verify.published import parse
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.silence import Batch, Highest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from support.programs import Played

choices = st.randoms(use_true_random=False)
ZERO = "metrics:0"
LIFE = "01HF7YAT00" + "A" * 16


def verify(
    records: Sequence[TopicRecord],
    rows: Sequence[tuple[bytes, bytes]],
    batches: Sequence[Batch],
    dead: Iterable[tuple[int, int]] | None = None,
) -> Outcome:
    """Check all of these rows, and that the newest row of each metric includes all records.

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

    published = [parse(key, value) for key, value in rows]
    newest = {row.identity: row for row in sorted(published, key=lambda row: row.version)}
    end = batches[-1].end if batches else None
    letters = None if dead is None else {(f"metrics:{partition}", offset) for partition, offset in dead}
    check = Check(Replay(), dict.fromkeys(by_partition, 0), end, until, batches=batches, letters=letters)
    return check.run(published, newest, set(), {partition: len(found) for partition, found in by_partition.items()})


class Schedule:
    """Builds records and the batches that read them. Times are ms from BEGIN_MS on."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []
        self.batches: list[Batch] = []

    def report(self, instance: str, at: int, value: int = 1, seq: int = 1, partition: int = 0) -> Schedule:
        """Append a snapshot of one gauge, of an instance that reports every second."""
        header = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000, "final": False}
        metrics = [{"type": "gauge", "name": "g", "value": value}]
        return self._append(instance, json.dumps(header | {"metrics": metrics}).encode(), at, partition)

    def wake(self, instance: str, at: int, partition: int = 0) -> Schedule:
        """Append a tombstone of an instance ID, as the aggregator does to wake the ID's shard."""
        return self._append(instance, None, at, partition)

    def _append(self, instance: str, value: bytes | None, at: int, partition: int) -> Schedule:
        offset = sum(record.partition == partition for record in self.records)
        self.records.append(TopicRecord(instance.encode(), value, BEGIN_MS + at, partition, offset))
        return self

    def batch(self, ts: int, shards: int | None = 1, **chosen: Any) -> Schedule:
        """End a batch that has read all records so far. `ts` is its wall time."""
        start = self.batches[-1].end if self.batches else {}
        end = {f"metrics:{p}": sum(r.partition == p for r in self.records) for p in {r.partition for r in self.records}}
        known = Batch(1, len(self.batches), BEGIN_MS + ts, start, end, shards=shards, begins=not self.batches)
        self.batches.append(known._replace(**chosen))
        return self

    def differs(self, number: int, batch: int = -1) -> bool:
        """Publish `number` living instances with a gauge of 1 as of this batch. Return whether verify objects."""
        publisher = self.batches[batch]
        fields = {"sum": number, "min": 1, "max": 1, "mean": 1.0} if number else {}
        last = {partition.rpartition(":")[2]: end - 1 for partition, end in publisher.end.items()}
        value: dict[str, Any] = fields | {
            "number": number,
            "lives": number,
            "instances": number,
            "ts": BEGIN_MS + 10**9,
        }
        value |= {"offsets": {"metrics": last}, "epoch": publisher.epoch, "batch": publisher.number}
        row = b'["shop","gauge","g",[]]', json.dumps(value).encode()
        outcome = verify(self.records, [row], self.batches)
        assert not outcome.unordered
        return bool(outcome.differences)

    def accepted(self) -> list[int]:
        """Return the numbers of living instances, from 0 to 3, that verify accepts."""
        return [number for number in range(4) if not self.differs(number)]


def test_silence_is_noticed_at_the_batchs_wall_time() -> None:
    """A partition's time is its clock plus the wall time since it was read, to the millisecond."""
    for ts, accepted in ((2_999, [1]), (3_000, [0])):
        schedule = Schedule().report("app-1", 0).batch(500).wake("w", 0, partition=1).batch(500 + ts)
        assert schedule.accepted() == accepted, ts


def test_the_wall_clock_may_be_set_back() -> None:
    """Then the wall time of a partition begins at the earlier time: its lives fall silent three intervals after it."""
    for ts, accepted in ((12_999, [1]), (13_000, [0])):
        schedule = Schedule().report("app-1", 0).batch(100_000).wake("w", 0, partition=1).batch(10_000)
        assert schedule.wake("w", 0, partition=1).batch(ts).accepted() == accepted, ts


def test_a_record_stops_the_wall_time_of_its_partition() -> None:
    """In the batch that reads the record, the partition's time is its clock, however long ago the last batch was."""
    schedule = Schedule().report("app-1", 0).batch(0).report("app-2", 2_999).batch(100_000)
    assert schedule.accepted() == [2]


def test_wall_time_is_not_added_if_a_batch_may_have_left_records_unread() -> None:
    """This holds for the partitions in `waiting`. If these are unknown, both numbers are accepted."""
    for waiting, accepted in ((frozenset(), [0]), (frozenset({ZERO}), [1]), (None, [0, 1])):
        schedule = Schedule().report("app-1", 0).batch(0).wake("w", 0, partition=1)
        assert schedule.batch(3_000, waiting=waiting).accepted() == accepted


def test_only_shards_with_records_notice_silence() -> None:
    """Of two instances in two shards, only the one in the shard that was woken is silent."""
    schedule = Schedule().report("app-1", 0).report("app-4", 0).batch(0, shards=2)
    schedule.wake("app-2", 0, partition=1)
    assert schedule.batch(9_000, shards=2).accepted() == [1]
    assert schedule.wake("w", 0, partition=1).batch(9_001, shards=2).accepted() == [0]


def test_a_silent_life_stays_silent_until_its_next_record() -> None:
    """This also holds in a later batch that left records unread, and so would not notice the silence itself."""
    schedule = Schedule().report("app-1", 0).batch(0).wake("w", 0, partition=1).batch(3_000)
    schedule.wake("w", 10).batch(3_001, waiting=frozenset({ZERO}))
    assert schedule.accepted() == [0]
    assert schedule.report("app-1", 20, seq=2).batch(3_002).accepted() == [1]


def test_a_sum_that_was_not_published_when_silence_was_noticed_is_a_difference() -> None:
    """The newest row was right for its batch, but a later batch should have published another one."""
    schedule = Schedule().report("app-1", 0).batch(0)
    assert not schedule.differs(1, batch=0)
    assert schedule.wake("w", 0, partition=1).batch(3_000).differs(1, batch=0)


def test_silence_that_missing_batches_of_the_ledger_may_have_noticed_is_unknown() -> None:
    """Such a life may be living or silent. A life that reported in a known batch is living."""
    schedule = Schedule().report("app-1", 0).batch(0).wake("w", 0, partition=1).batch(3_000).wake("w", 0).batch(9_000)
    del schedule.batches[1]
    assert schedule.accepted() == [0, 1]
    schedule.report("app-2", 10).batch(9_001)
    assert schedule.accepted() == [1, 2]
    assert schedule.report("app-1", 20, seq=2).batch(9_002).accepted() == [2]


def test_silence_is_unknown_if_the_ledger_has_no_number_of_shards() -> None:
    """A shard without records notices no silence, and it is unknown which shard had the records."""
    schedule = Schedule().report("app-1", 0).batch(0, shards=None)
    assert schedule.wake("w", 0, partition=1).batch(3_000, shards=None).accepted() == [0, 1]


def test_a_rebuilt_table_counts_the_wall_time_from_its_first_batch() -> None:
    """A batch of the lost checkpoint that is missing in the ledger may have noticed silence, so both are accepted.

    Silence that a batch in the ledger noticed is known.
    """
    schedule = Schedule().report("app-1", 0).batch(0).wake("w", 0, partition=1)
    assert schedule.batch(2_999, epoch=2, begins=True).accepted() == [1]
    assert schedule.wake("w", 0, partition=1).batch(5_998, epoch=2).accepted() == [1]
    assert schedule.wake("w", 0, partition=1).batch(5_999, epoch=2).accepted() == [0]
    schedule = Schedule().report("app-1", 0).batch(0).wake("w", 0, partition=1).batch(3_000, epoch=2, begins=True)
    assert schedule.accepted() == [0, 1]
    schedule = Schedule().report("app-1", 0).batch(0).wake("w", 0, partition=1).batch(3_000)
    assert schedule.wake("w", 0, partition=1).batch(3_001, epoch=2, begins=True).accepted() == [0]


def test_the_clock_of_a_shard_that_may_have_run_since_a_split_is_unknown() -> None:
    """A rebuilt shard has the clocks of all shards, or its own if it ran in a batch that the ledger lacks.

    This holds for the records that it reads before it is certain that its own clock is as high.
    """
    everywhere = frozenset({ZERO, "metrics:1"})
    schedule = Schedule().report("app-1", 0).batch(0)
    schedule.wake("app-4", 9_000).batch(9_000, shards=2, epoch=2, begins=True, waiting=everywhere)
    schedule.wake("app-4", 9_001).batch(9_001, shards=2, epoch=3, begins=True, waiting=everywhere)
    schedule.wake("app-2", 0, partition=1).batch(9_002, shards=2, epoch=3, waiting=everywhere)
    assert schedule.accepted() == [0, 1]
    schedule.report("app-1", 5_000, seq=2).batch(9_003, shards=2, epoch=3, waiting=everywhere)
    assert schedule.accepted() == [0, 1]
    schedule.wake("app-2", 8_000).batch(9_004, shards=2, epoch=3, waiting=everywhere)
    assert schedule.accepted() == [0, 1]
    assert schedule.wake("app-2", 12_001).batch(9_005, shards=2, epoch=3, waiting=everywhere).accepted() == [0]


@examples(100)
@given(st.lists(st.integers(1, 9), max_size=20), st.integers(0, 20))
def test_the_highest_time_since_a_batch_is_that_of_all_later_ones(times: list[int], since: int) -> None:
    """`Highest` keeps only the times that can still be the highest."""
    highest = Highest()
    for at, time in enumerate(times):
        highest.note(at, time)
    assert highest.since(since) == max(times[since:], default=0)


def with_wakes(played: Played, chance: random.Random) -> Played:
    """Add tombstones of instances that publish nothing. Each of them wakes a shard."""
    appended: list[Appended] = []
    ends: dict[int, int] = {}

    def append(one: Appended) -> None:
        offset = ends[one.record.partition] = ends.get(one.record.partition, -1) + 1
        appended.append(one._replace(record=one.record._replace(offset=offset)))

    for one in played.appended:
        append(one)
        for _ in range(chance.choice([0, 0, 1, 3])):
            at = one.record.timestamp_ms + chance.choice([0, 1_000, 60_000])
            key = f"wake-{chance.randrange(20)}".encode()
            real_ms = one.real_ms + chance.choice([0, 0, 30_000, 3 * HOUR_MS])
            append(Appended(TopicRecord(key, None, at, one.record.partition, 0), real_ms))
    in_order = sorted(appended, key=lambda one: (one.record.partition, one.record.offset))
    latest: dict[int, int] = {}
    for number, one in enumerate(in_order):  # offsets and real times rise together
        at = latest[one.record.partition] = max(one.real_ms, latest.get(one.record.partition, 0))
        in_order[number] = one._replace(real_ms=at)
    in_order.sort(key=lambda one: (one.real_ms, one.record.partition, one.record.offset))
    played.appended[:] = in_order
    played.ends_ms = max(played.ends_ms, *(one.real_ms for one in in_order)) if in_order else played.ends_ms
    return played


def run(
    schedule: list[int], mode: str, shards: int, chance: random.Random, *, broken: float, splits: bool = False
) -> tuple[Played, Tables]:
    """Run a schedule with wake-ups. Before a share `broken` of the batches, a checkpoint is lost or a writer replaced.

    With `splits`, a rebuilt table is sometimes split into more shards, too. Nothing breaks in a schedule that forgets a
    metric: a sum between the forget records of two partitions may lack what a lost table had forgotten of both.
    """
    played = with_wakes(play(schedule), chance)
    forgets_metric = any(b'"forget": {"metric"' in (record.value or b"") for record in played.records)
    chosen = table_settings(forget_after_ms=30 * DAY_MS)
    tables = Tables(played.records, chosen, 1 if forgets_metric else shards, chance, strict=True)
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
def test_verify_finds_silence_where_the_table_does(
    mode: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """Every published sum equals the replay's, and no sum is undetermined unless a metric is forgotten.

    Between the forget records of two partitions, a metric's sum depends on which of its lives were forgotten before.
    """
    played, tables = run(schedule, mode, shards, chance, broken=0)
    outcome = verify(played.records, tables.rows, tables.ledger, tables.dead)
    assert (outcome.differences, outcome.unordered, outcome.lost_letters) == ([], 0, 0)
    assert not outcome.undetermined or any(b'"forget": {"metric"' in (record.value or b"") for record in played.records)
    assert outcome.sums == len(tables.rows)


@pytest.mark.parametrize("mode", MODES)
@examples(15)
@given(clock_schedules, st.integers(1, 6), choices)
def test_verify_agrees_after_lost_checkpoints_and_splits_into_more_shards(
    mode: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """A value that is unknown after a crash is not a difference, nor are dead letters that a crashed batch lost."""
    played, tables = run(schedule, mode, shards, chance, broken=0.1, splits=True)
    assert verify(played.records, tables.rows, tables.ledger, tables.dead).differences == []


def test_a_rebuilt_table_does_not_publish_a_metric_that_the_lost_batch_added_and_removed() -> None:
    """The lost batch wrote its rows but no sums, and the rows have no life with the metric. This is no difference."""
    schedule = Schedule().report("app-1", 0)
    other = (schedule.records[0].value or b"").replace(b'"g"', b'"h"')
    schedule._append("app-2", other, 1, 0).wake("app-2", 2).report("app-1", 3, seq=2)
    all_written = random.Random(2)  # the first number is above 0.7: every row is written
    tables = Tables(schedule.records, table_settings(), strict=True)
    tables.batch(Planned(BEGIN_MS, {0: 1}, all_read=True))
    tables.batch(Planned(BEGIN_MS + 2, {0: 3}, all_read=True), written=all_written)
    tables.rebuild()
    tables.batch(Planned(BEGIN_MS + 3, {0: 4}, all_read=True))
    assert {parse(key, value).identity[2] for key, value in tables.rows} == {"g"}
    assert verify(schedule.records, tables.rows, tables.ledger, tables.dead).differences == []


@pytest.mark.parametrize("chance", range(40, 60))
def test_a_metric_is_forgotten_in_one_partition_before_the_other(chance: int) -> None:
    """In between, its sum depends on which of its lives were forgotten before. Verify accepts all, some or none."""
    schedule = [1258, 28, 0, 0, 0, 0, 0, 269644, 1, 1]
    played, tables = run(schedule, "live", 1, random.Random(chance), broken=0.1)
    assert verify(played.records, tables.rows, tables.ledger).differences == []


@pytest.mark.parametrize(("partitions", "counts"), [([1], [0, 2]), ([1, 2], [0, 2]), ([0, 1], [0])])
def test_a_metric_of_an_old_life_is_forgotten_partition_by_partition(partitions: list[int], counts: list[int]) -> None:
    """After the forget records of other partitions the count is uncertain. That of the life's partition removes it.

    The last record of the life is more than a week old. So the table may have forgotten the life, and with it its
    partition.
    """
    header = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
    snapshot = json.dumps(header | {"metrics": [{"type": "counter", "name": "c", "count": 2}]}).encode()
    schedule = Schedule()._append("app-1", snapshot, 0, 0).wake("w", 8 * DAY_MS)
    for partition in partitions:
        schedule._append("tallystream-aggregator", b'{"v": 1, "forget": {"metric": "c"}}', 8 * DAY_MS, partition)
    schedule.batch(8 * DAY_MS)
    last = {partition.rpartition(":")[2]: end - 1 for partition, end in schedule.batches[-1].end.items()}
    accepted = []
    for count in range(4):
        value = {"count": count, "ts": BEGIN_MS, "offsets": {"metrics": last}, "epoch": 1}
        row = b'["shop","counter","c",[]]', json.dumps(value).encode()
        if not verify(schedule.records, [row], schedule.batches).differences:
            accepted.append(count)
    assert accepted == counts


@pytest.mark.parametrize("mode", MODES)
@examples(15)
@given(clock_schedules, st.integers(1, 6), choices)
def test_verify_agrees_after_lost_checkpoints_and_with_lost_rows_of_the_ledger(
    mode: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """Silence that the batches of the lost rows noticed is not a difference."""
    played, tables = run(schedule, mode, shards, chance, broken=0.1)
    ledger = [row for row in tables.ledger if row.begins or chance.random() < 0.9]
    assert verify(played.records, tables.rows, ledger).differences == []


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
    """What the batches of a gap noticed is not a difference, if no checkpoint was lost (docs/verify.md)."""
    played, tables = run(schedule, mode, shards, chance, broken=0)
    assert verify(played.records, tables.rows, with_gaps(tables.ledger, chance)).differences == []
