"""A table cut into shards says what an uncut one says, through crashes, rebuilds, and a cut into more shards."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support import oracle
from support.kept import Kept
from support.schedules import RETIRE_AFTER_MS, Written, cut, cuts, play, schedules, short_schedules
from tallystream_aggregator.table import Record, State, TableSettings, combiners, storage
from tallystream_aggregator.table.arithmetic.sketches import SHARES
from tallystream_aggregator.table.combiners import CombinerGroup, combine_shards
from tallystream_aggregator.table.restore.latest_rows import LatestRows, RebuildError
from tallystream_aggregator.table.restore.restore import included_by_all, restore
from tallystream_aggregator.table.shards import decode, encode, group_of, shard_of
from tallystream_aggregator.versions import UNKNOWN

if TYPE_CHECKING:
    from tallystream_aggregator.table.outputs import Total
    from tallystream_aggregator.versions import Version

SETTINGS = TableSettings(retire_after_ms=RETIRE_AFTER_MS, short_form_every_ms=5_000)
# The limit of metrics per life is judged otherwise after some rebuilds, as docs/table.md says: there it is not reached.
LIMITED = TableSettings(retire_after_ms=RETIRE_AFTER_MS, short_form_every_ms=5_000, max_metrics=8)
slow = list(HealthCheck)
shards = st.integers(2, 5)


def one_clock(records: list[Written]) -> list[Written]:
    """Return the records as a broker whose clock never steps back appends them: a shard sees not all of a partition."""
    highest: dict[int, int] = {}
    out = []
    for record in records:
        highest[record.partition] = max(record.timestamp_ms, highest.get(record.partition, 0))
        out.append(record._replace(timestamp_ms=highest[record.partition]))
    return out


class Cut:
    """A table of several shards with its combiners, `metrics-table`, the ledger's end, and what a reader has seen."""

    def __init__(self, number: int, records: list[Written], settings: TableSettings = SETTINGS) -> None:
        self.records = records
        self.settings = settings
        self.log: list[tuple[bytes, bytes | None, Version, int]] = []
        self.epoch, self.batches = 1, 0
        self.finished: dict[str, int] = {}
        self.sums: dict[Any, dict[str, Any]] = {}
        self.dead: set[tuple[int, int]] = set()
        self.cut_off: list[Written] = []
        self._begin(
            [State(shard=shard, shards=number) for shard in range(number)], [CombinerGroup() for _ in range(number)]
        )

    def _begin(self, states: list[State], groups: list[CombinerGroup]) -> None:
        self.number, self.woken = len(states), self.batches == 0
        self.begun: list[State] = states
        self.groups: list[CombinerGroup] = groups
        self.shards = [Kept() for _ in states]
        self.combiners = [Kept() for _ in groups]

    def batch(self, records: list[Written], written: random.Random | None = None) -> None:
        """Run a batch: only the shards with records run. With `written`, it is cut off in the midst of its writes."""
        by_shard: dict[int, list[Written]] = {}
        for record in sorted(records, key=lambda record: (record.partition, record.offset)):
            by_shard.setdefault(shard_of(record.key, self.number), []).append(record)
        if not self.woken:  # each shard publishes what it began with, as it has a record that wakes it
            by_shard = {shard: by_shard.get(shard, []) for shard in range(self.number)}
            self.woken = written is None
        shard_sums = [one for shard, mine in by_shard.items() for one in self._shard(shard, mine, written)]
        if written is not None:
            self.cut_off += records
            return
        self._combine(shard_sums)
        self.batches += 1
        for record in records:
            name = f"metrics:{record.partition}"
            self.finished[name] = max(self.finished.get(name, 0), record.offset + 1)

    def is_unfinished(self) -> bool:
        """Tell whether what a batch had read that was cut off has not all been read again since."""
        return any(record.offset >= self.finished.get(f"metrics:{record.partition}", 0) for record in self.cut_off)

    def expire(self) -> None:
        """Let every shard's timer expire, when each has seen how late it is."""
        clocks: dict[str, int] = {}
        for record in self.records:
            name = f"metrics:{record.partition}"
            clocks[name] = max(record.timestamp_ms, clocks.get(name, 0))
        self._combine([one for shard in range(self.number) for one in self._shard(shard, [], clocks=clocks)])

    def _combine(self, shard_sums: list[tuple[int, bytes | None]]) -> None:
        by_group: dict[int, list[bytes]] = {}
        for group, one in shard_sums:
            by_group.setdefault(group, []).extend([one] if one is not None else [])
        for group, ones in by_group.items():
            found = combiners.load(self.combiners[group], lambda group=group: self.groups[group])  # type: ignore[misc]
            found.group.update(map(decode, ones))
            totals, _ = found.group.changes()
            found.save(self.combiners[group])
            self._see(totals)

    def _shard(
        self,
        shard: int,
        mine: list[Written],
        written: random.Random | None = None,
        clocks: dict[str, int] | None = None,
    ) -> list[tuple[int, bytes | None]]:
        found = storage.load(self.shards[shard], self.settings, lambda: self.begun[shard])
        is_new = not found.table.state.published
        found.table.begin_batch()
        found.table.apply(Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in mine)
        found.table.state.clocks.update(clocks or {})
        found.table.notice_silence()
        if is_new:  # by the record that wakes it, if by no other
            found.table._shard_row_changed = True
        changes = found.table.changes()
        assert changes.totals == []
        writer = self.epoch, self.batches
        rows = [(row.key, row.value(epoch=writer[0], batch=writer[1]), writer, shard) for row in changes.rows]
        if written is not None:
            whole = written.random() < 0.4
            self.log += rows if whole else [row for row in rows[:-1] if written.random() < 0.5]
            return []
        self.log += rows
        found.save(self.shards[shard])
        self.dead |= {(letter.record.partition, letter.record.offset) for letter in changes.dead}
        every: list[tuple[int, bytes | None]] = [(group, None) for group in range(self.number)] if is_new else []
        return every + [(group_of(one.metric, self.number), encode(one)) for one in changes.shard_sums]

    def _see(self, totals: list[Total]) -> None:
        for total in totals:
            exact = {name: value for name, value in total.totals.items() if name not in SHARES}
            counts = {"lives": total.lives, "instances": total.instances}
            gauge = {"mean": total.mean} if "number" in total.totals else {}
            overflow = {"overflow": True} if total.overflow else {}
            self.sums[total.metric] = exact | gauge | counts | overflow

    def rebuild(self, number: int | None = None, *, behind: bool = False) -> list[Written]:
        """Lose the checkpoint, take the states from the topic, and return the records to read on from."""
        standing = LatestRows()
        for record in random.Random(len(self.log)).sample(self.log, len(self.log)):  # partitions have no order
            standing.add(*record)
        found = restore(standing, set(self.sums), shards=number, finished={} if behind else self.finished)
        self.epoch = found.epoch + 1
        self._begin(found.states, [*map(_stored_and_read, combine_shards(found.states))])
        included = included_by_all(found.states)
        return [r for r in self.records if r.offset > included.get(f"metrics:{r.partition}", -1)]


def _stored_and_read(group: CombinerGroup) -> CombinerGroup:
    return combiners.unpack(list(combiners.pack(group)))


def replayed(records: list[Written], settings: TableSettings = SETTINGS) -> oracle.Outcome:
    """Return the oracle's outcome, which knows no shards."""
    return oracle.replay(records, short_form_every_ms=5_000, max_metrics=settings.max_metrics)


def compare(system: Cut, wanted: oracle.Outcome) -> None:
    """Compare what a reader has with the oracle.

    What came and was taken out by a tombstone in a batch that was cut off has no sum: nobody ever saw one.
    """
    never_seen = {key: fields for key, fields in wanted.sums.items() if key not in system.sums}
    assert system.sums | never_seen == wanted.sums
    assert not any(value for fields in never_seen.values() for value in fields.values())


@settings(max_examples=150, deadline=None, suppress_health_check=slow)
@given(short_schedules, cuts, shards)
def test_the_sums_of_a_few_records_do_not_depend_on_shards(schedule: list[int], sizes: list[int], number: int) -> None:
    """Counts, sums, extremes, positions, dead letters are the oracle's, whatever the cut into batches and shards."""
    check(schedule, sizes, number)


@settings(max_examples=50, deadline=None, suppress_health_check=slow)
@given(schedules, cuts, shards)
def test_the_sums_of_many_records_do_not_depend_on_shards(schedule: list[int], sizes: list[int], number: int) -> None:
    """As above, in schedules long enough for lives to retire, come back and be buried."""
    check(schedule, sizes, number)


def check(schedule: list[int], sizes: list[int], number: int) -> None:
    """Run the schedule in shards and compare."""
    records = one_clock(play(schedule, number))
    system = Cut(number, records, LIMITED)
    for batch in cut(records, sizes):
        system.batch(batch)
    system.expire()
    wanted = replayed(records, LIMITED)
    assert system.dead == set(wanted.dead)
    compare(system, wanted)


@settings(max_examples=150, deadline=None, suppress_health_check=slow)
@given(short_schedules, cuts, shards, st.randoms(use_true_random=False))
@example([0, 0, 0, 0, 1_000_000], [3], 2, random.Random(23))  # the first batch after a split is cut off
def test_a_table_of_shards_is_rebuilt_after_a_few_records(
    schedule: list[int], sizes: list[int], number: int, chance: random.Random
) -> None:
    """Whichever shards had written which rows of the last batch, and wherever the ledger ends, no sum is different."""
    check_rebuilt(schedule, sizes, number, chance)


@settings(max_examples=50, deadline=None, suppress_health_check=slow)
@given(schedules, cuts, shards, st.randoms(use_true_random=False))
def test_a_table_of_shards_is_rebuilt_after_many_records(
    schedule: list[int], sizes: list[int], number: int, chance: random.Random
) -> None:
    """As above, with lives on their way out."""
    check_rebuilt(schedule, sizes, number, chance)


def check_rebuilt(schedule: list[int], sizes: list[int], number: int, chance: random.Random) -> None:
    """Run the schedule, lose the checkpoint at random places, and cut the table into more shards at others."""
    records = one_clock(play(schedule, shards=0))  # no record of so many shards is for a table of more
    system = Cut(number, records)
    left, rebuilds = records, 0
    while left:
        batch, *_ = cut(left, [chance.choice(sizes)])
        if system.batches and rebuilds < 3 and chance.random() < 0.3:
            rebuilds += 1
            if chance.random() < 0.4:
                left = system.rebuild(system.number + (0 if system.is_unfinished() else chance.randrange(3)))
            else:
                system.batch(batch, written=chance)
                left = system.rebuild(behind=chance.random() < 0.3)
            continue
        system.batch(batch)
        left = [record for record in left if record not in batch]
    system.expire()
    compare(system, replayed(records))


def test_fewer_shards_are_refused() -> None:
    """The bases belong to their shards: the sentence says that there can be more, never fewer."""
    system = Cut(3, [])
    system.log = [
        (
            b'["shard",0]',
            b'{"v":1,"shard":0,"shards":3,"clocks":{},"offsets":{},"out_ms":0,"list_id":0,"stale":0}',
            UNKNOWN,
            0,
        )
    ]
    with pytest.raises(RebuildError, match="--shards 2: the table has 3; it can be split into more, never into fewer"):
        system.rebuild(2)


def test_more_shards_are_refused_while_a_batch_may_be_unfinished() -> None:
    """A shard has written more than the ledger calls finished: the sentence says what to do first."""
    row = (
        b'{"v":1,"shard":0,"shards":1,"clocks":{"metrics:0":5},"offsets":{"metrics:0":9},'
        b'"out_ms":0,"list_id":0,"stale":0}'
    )
    system = Cut(1, [])
    system.log = [(b'["shard",0]', row, UNKNOWN, 0)]
    system.finished = {"metrics:0": 9}
    with pytest.raises(RebuildError, match="--shards 2: the last batch is not known to be finished; run"):
        system.rebuild(2)
    system.finished = {"metrics:0": 10}
    assert system.rebuild(2) == []
    assert [state.offsets for state in system.begun] == [{"metrics:0": 9}] * 2


def test_a_table_that_was_to_be_cut_into_more_shards_is_rebuilt_as_it_was() -> None:
    """Its first batch was cut off before a shard had finished: what the new shards had begun to write does not count.

    Nor does it when the table is cut later: then a shard's rows are those that it has written since.
    """
    row = (
        b'{"v":1,"shard":0,"shards":2,"clocks":{"metrics:0":5},"offsets":{"metrics:0":9},'
        b'"out_ms":0,"list_id":0,"stale":0}'
    )
    begun = b'{"v":1,"list_id":1,"lives":[["a","b","c"]],"epoch":2}'
    system = Cut(2, [])
    system.log = [(b'["shard",0]', row, UNKNOWN, 0), (b'["forgetting",3,1,0]', begun, UNKNOWN, 3)]
    system.finished = {"metrics:0": 10}
    system.rebuild()
    assert system.number == 2
    assert all(state.delete_keys == state.listed == state.deleting == [] for state in system.begun)
    system.rebuild(4)
    assert all(state.delete_keys == state.listed == state.deleting == [] for state in system.begun)


def moved(shard: int, *, shards: int, epoch: int, since: int) -> tuple[bytes, bytes, Version, int]:
    """Return a shard's own record, in its partition."""
    row = {"v": 1, "shard": shard, "shards": shards, "since": since, "clocks": {}, "offsets": {"metrics:0": 9}}
    row |= {"before": [2, 0]} if since else {}
    value = json.dumps(row | {"out_ms": 0, "list_id": 0, "stale": 0, "epoch": epoch, "batch": 1}).encode()
    return b'["shard",%d]' % shard, value, UNKNOWN, shard


def counted(instance: str, count: int, *, epoch: int, partition: int) -> tuple[bytes, bytes, Version, int]:
    """Return a life's row in a partition."""
    row = {"app": "a", "instance": instance, "life": "L", "part": 0, "topic": "metrics", "partition": 0, "offset": 5}
    row |= {
        "last_seen_ms": 1,
        "every_ms": 1000,
        "keep_ms": 1,
        "metrics": [{"name": "n", "type": "counter", "count": count}],
    }
    key = json.dumps(["life", "a", instance, "L", 0], separators=(",", ":")).encode()
    return key, json.dumps(row | {"epoch": epoch, "batch": 1}).encode(), UNKNOWN, partition


def test_a_row_in_a_partition_that_is_not_its_shard_s_does_not_count() -> None:
    """What a cut left in the old partitions is ignored, though its deletion in the new one has been compacted away.

    So is what a cut that was given up left in the new ones; until a shard has written its rows, the old ones count.
    """
    names = [f"app-{number}" for number in range(60)]
    gone = next(n for n in names if shard_of(n.encode(), 2) == 0 and shard_of(n.encode(), 3) == 1)
    late = next(n for n in names if shard_of(n.encode(), 2) == 0 and shard_of(n.encode(), 3) == 2)
    kept = next(n for n in names if n != gone and shard_of(n.encode(), 3) == 1)

    def rebuilt(*log: tuple[bytes, bytes, Version, int]) -> dict[str, list[int | float | None]]:
        standing = LatestRows()
        for record in log:
            standing.add(*record)
        states = restore(standing).states
        lives = [life for state in states for (life,) in state.lives.values()]
        return {life.instance: [row.values[0] for row in life.rows.values()] for life in lives}

    old = [moved(0, shards=2, epoch=1, since=0), counted(gone, 7, epoch=1, partition=0)]
    old.append(counted(late, 5, epoch=1, partition=0))
    new = [moved(1, shards=3, epoch=4, since=3), counted(kept, 9, epoch=4, partition=1)]
    given_up = counted(gone, 8, epoch=2, partition=1)
    assert rebuilt(*old, *new, given_up) == {kept: [9], late: [5]}
    assert rebuilt(*old, given_up) == {gone: [7], late: [5]}
    done = [moved(number, shards=3, epoch=4, since=3) for number in (0, 2)]
    assert rebuilt(*old, *new, *done, given_up) == {kept: [9]}
