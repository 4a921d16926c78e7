"""No count depends on a clock but the record's own: random schedules, and the cases that showed what one would cost."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from support import oracle
from support.clocks import DAY_MS, HOUR_MS, PLANS, Batch, Played, clock_schedules, plan, play
from support.schedules import BEGIN_MS, Written, takes_out
from support.tables import Tables, settings
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table
from tallystream_aggregator.table.restore.latest_rows import LatestRows
from tallystream_aggregator.table.restore.restore import restore
from tallystream_aggregator.table.shards import shard_of
from tallystream_aggregator.table.table import run_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

slow = list(HealthCheck)
choices = st.randoms(use_true_random=False)
shard_numbers = st.integers(1, 4)


def random_settings(chance: random.Random, **chosen: int) -> Any:
    """Return settings whose times may be anything: no count depends on them."""
    retire = chance.choice([1, 6, 12, 24, 48, 240]) * HOUR_MS
    return settings(**{"retire_after_ms": retire, "forget_after_ms": chance.choice([7, 7, 10, 30]) * DAY_MS} | chosen)


def lasting(sums: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Return what stays of sums when nobody is living."""
    return {
        key: {name: value for name, value in fields.items() if name in oracle.LASTING[key[2]]}
        for key, fields in sums.items()
        if oracle.LASTING[key[2]]
    }


def counted(sums: dict[Any, dict[str, Any]]) -> dict[tuple[str, str, str], int]:
    """Return counts and positions as the programs know them."""
    found = {
        (app, kind, name): fields["position" if kind == "position" else "count"]
        for (app, name, kind, _), fields in lasting(sums).items()
    }
    return {key: count for key, count in found.items() if count}


def require_no_fall(before: dict[Any, dict[str, Any]], after: dict[Any, dict[str, Any]]) -> None:
    """Require that no count and no position is lower than before."""
    for key, fields in before.items():
        for name in ("count", "position"):
            assert (after[key].get(name) or 0) >= (fields.get(name) or 0), (key, name)


def is_cuttable(played: Played) -> bool:
    """Tell whether no record takes a metric out: such a record names the number of shards."""
    return not any(b'"forget": {"metric"' in (record.value or b"") for record in played.records)


def run(batches: list[Batch], tables: Tables, chance: random.Random, broken: float, *, cuttable: bool = False) -> None:
    """Run the batches, before a share `broken` of which things go wrong; no count falls but where it is taken out.

    A `cuttable` table may be cut into more shards.
    """
    read: list[Written] = []
    for batch in batches:
        before = dict(tables.sums)
        while tables.is_begun and chance.random() < broken:
            read += break_down(batch, tables, chance, cuttable=cuttable)
        read += tables.batch(batch)
        if not any(map(takes_out, read)):
            require_no_fall(before, tables.sums)
        if tables.published:
            read.clear()
    end(batches, tables)


def end(batches: list[Batch], tables: Tables) -> None:
    """Have every life fall silent: a table that was just rebuilt gives its partitions time, from its first batch on."""
    for days in (1, 2):
        tables.batch(batches[-1]._replace(wall_ms=batches[-1].wall_ms + days * DAY_MS, all_read=True))


def break_down(batch: Batch, tables: Tables, chance: random.Random, *, cuttable: bool) -> list[Written]:
    """Cut a batch off, or stop before it; go on as another writer, or from `metrics-table`. Return what was read."""
    if chance.random() < 0.2:
        tables.compact()
    read = tables.batch(batch, written=chance) if chance.random() < 0.7 else []
    if chance.random() < 0.3:
        tables.take_over()
    else:
        tables.rebuild(
            chance.choice([0, 0, 1, 2]) if cuttable and tables.shards < 6 else 0, behind=chance.random() < 0.2
        )
    return read


def judge(played: Played, tables: Tables) -> None:
    """Compare sums with the oracle and with what the programs counted, dead letters with what was refused."""
    wanted = oracle.replay(played.records)
    assert counted(wanted.sums) == {key: count for key, count in played.counted.items() if count}
    assert set(wanted.dead) == played.refused
    found = lasting(tables.sums)
    # What came and was taken out in a batch that was cut off has no sum: nobody ever saw one.
    assert found == {
        key: fields for key, fields in lasting(wanted.sums).items() if key in found or any(fields.values())
    }
    assert all(fields["lives"] == fields["instances"] == 0 for fields in tables.sums.values())
    assert tables.dead <= played.refused


def check(schedule: list[int], kind: str, shards: int, chance: random.Random, *, broken: float) -> Tables:
    """Run a schedule and judge it; return the tables."""
    played = play(schedule, shards)
    tables = Tables(played.records, random_settings(chance), shards, chance)
    run(plan(played, kind, chance), tables, chance, broken, cuttable=is_cuttable(played))
    judge(played, tables)
    if not broken:
        assert tables.dead == played.refused
    return tables


@pytest.mark.parametrize("kind", PLANS)
@examples(max_examples=12, deadline=None, suppress_health_check=slow)
@given(clock_schedules, shard_numbers, choices)
def test_no_count_depends_on_clocks_settings_cuts_or_shards(
    kind: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """Sums are the oracle's and the programs', whatever clocks, settings, cuts and shards are; no count falls."""
    check(schedule, kind, shards, chance, broken=0)


@pytest.mark.parametrize("kind", PLANS)
@examples(max_examples=12, deadline=None, suppress_health_check=slow)
@given(clock_schedules, shard_numbers, choices)
def test_no_count_depends_on_crashes_takeovers_lost_checkpoints_or_cuts_into_more_shards(
    kind: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """As above, with batches that are cut off in the middle of their rows, other writers, rebuilds, and more shards."""
    check(schedule, kind, shards, chance, broken=0.2)


@examples(max_examples=12, deadline=None, suppress_health_check=slow)
@given(clock_schedules, shard_numbers, choices)
def test_every_cut_into_batches_and_shards_says_the_same(
    schedule: list[int], shards: int, chance: random.Random
) -> None:
    """The same sums and dead letters; where no instance moves, also the same events and number of stale records.

    No life is forgotten here: a new life is no restart of a forgotten one, and the cut decides when one is forgotten.
    """
    played = play(schedule, shards)
    outcomes = []
    for kind in chance.sample(PLANS, 2):
        number = chance.choice([1, shards]) if is_cuttable(played) else shards
        chosen = random_settings(chance, forget_after_ms=365 * DAY_MS)
        tables = Tables(played.records, chosen, number, chance)
        run(plan(played, kind, chance), tables, chance, broken=0)
        # The time of an event is its shard's clock.
        events = sorted((kind, app, instance, life, detail) for kind, app, instance, life, _, detail in tables.events)
        ordered = (events, sum(state.stale for state in tables.states))
        is_ordered = is_cuttable(played) and "partitions" not in played.features
        outcomes.append((lasting(tables.sums), tables.dead, ordered if is_ordered else None))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("kind", PLANS)
@examples(max_examples=12, deadline=None, suppress_health_check=slow)
@given(clock_schedules, shard_numbers, choices)
def test_no_count_depends_on_what_replaced_writers_overwrite(
    kind: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """Nor on compaction, which keeps what they wrote last, once the table has published these keys again."""
    played = play(schedule, shards)
    tables = Tables(played.records, random_settings(chance), shards, chance)
    batches = plan(played, kind, chance)
    for batch in batches:
        if not tables.batches or chance.random() < 0.7:
            tables.batch(batch)
            continue
        tables.take_over()
        tables.batch(batch, republish=tables.overwrite(chance))
        if chance.random() < 0.5:
            tables.rebuild()
    end(batches, tables)
    judge(played, tables)


def test_a_life_falls_silent_in_a_shard_that_lost_the_clocks_of_before() -> None:
    """After a split, batches were cut off twice, so no row of before has a clock: the rows of lives have one."""
    schedule = [2059, 6300932, 457, 1022, 1189, 1, 1, 1, 1, 15927147, 1703758, 4160, 6087, 0]
    check(schedule, "live", 1, random.Random(244), broken=0.2)


@examples(max_examples=12, deadline=None, suppress_health_check=slow)
@given(clock_schedules, choices)
def test_what_one_batch_reads_is_living_by_its_partitions_clock(schedule: list[int], chance: random.Random) -> None:
    """Gauges, rates and numbers of lives of a backlog that one batch reads are the oracle's, whatever retires."""
    played = play(schedule)
    tables = Tables(played.records, random_settings(chance))
    tables.batch(plan(played, "one batch", chance)[0])
    wanted = oracle.replay(played.records)
    assert tables.sums == {
        key: fields for key, fields in wanted.sums.items() if key in tables.sums or any(fields.values())
    }


def test_the_oracle_and_the_programs_agree_on_every_schedule() -> None:
    """The two judges share nothing: the oracle reads the topic, the programs compare what they were acknowledged."""
    features: set[str] = set()
    refused = 0
    for seed in range(150):
        chance = random.Random(seed)
        played = play([chance.randrange(2**32) for _ in range(chance.randint(10, 90))])
        wanted = oracle.replay(played.records)
        assert counted(wanted.sums) == {key: count for key, count in played.counted.items() if count}, seed
        assert set(wanted.dead) == played.refused, seed
        features |= played.features
        refused += len(played.refused)
    assert features == {"jumps", "partitions", "copies", "outages", "days"}
    assert refused > 100


class Story:
    """A topic written by hand: times are in hours of a partition's broker clock."""

    def __init__(self) -> None:
        self.records: list[Written] = []

    def snapshot(
        self,
        instance: str,
        count: int,
        *,
        at: float,
        seq: int,
        life: str,
        prev: float | None = None,
        partition: int = 0,
        name: str = "n",
    ) -> Story:
        """Append a snapshot of one counter and a gauge; `prev` is in hours too."""
        header = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000, "final": False}
        header |= {"prev": None if prev is None else _ms(prev)}
        metrics = [{"type": "counter", "name": name, "count": count}, {"type": "gauge", "name": "g", "value": count}]
        return self.append(instance, json.dumps(header | {"metrics": metrics}).encode(), at=at, partition=partition)

    def append(self, instance: str, value: bytes | None, *, at: float, partition: int = 0) -> Story:
        """Append a record."""
        offset = sum(record.partition == partition for record in self.records)
        self.records.append(Written(instance.encode(), value, _ms(at), partition, offset))
        return self

    def tables(self, *ends: dict[int, int], **chosen: int) -> Tables:
        """Return the tables after batches that end at these offsets, or after each of the records."""
        tables = Tables(self.records, settings(**chosen))
        upto = dict.fromkeys({record.partition for record in self.records}, 0)
        cuts = list(ends)
        if not cuts:
            for record in self.records:
                upto = upto | {record.partition: record.offset + 1}
                cuts.append(upto)
        for number, one in enumerate(cuts):
            tables.batch(Batch(_ms(1_000) + number, one, all_read=number + 1 == len(cuts)))
        return tables


def _ms(hours: float) -> int:
    return BEGIN_MS + round(hours * HOUR_MS)


def life(hours: float = 0) -> str:
    """Return a ULID of that hour."""
    return new_ulid(_ms(hours))


def count_of(tables: Tables) -> int:
    """Return what the programs of a story counted, as published."""
    return sum(fields["count"] for key, fields in tables.sums.items() if key[0] == "shop" and "count" in fields)


@pytest.mark.parametrize(("ahead", "away"), [(25, 1), (13, 11.5), (72, 1), (72, 23)])
def test_a_record_of_a_broker_that_was_ahead_refuses_nobody_elses(ahead: float, away: float) -> None:
    """One record appended 25 h ahead, or 13 h after an outage of 11.5 h: 1,799 were counted, not 1,809."""
    story, one = Story(), life()
    story.snapshot("app-1", 10, at=0, seq=1, life=one)
    story.append("script", b'{"name":"n","value":1}', at=away - 0.1 + ahead)
    prev = 0.0
    for seq in range(2, 60):
        at = away + (seq - 2) * 2
        story.snapshot("app-1", min(1799, 400 * seq), at=at, seq=seq, life=one, prev=prev)
        prev = at
    tables = story.tables()
    assert (count_of(tables), tables.dead) == (1799, set())


@pytest.mark.parametrize(
    "ends",
    [
        ({0: 36, 1: 0}, {0: 36, 1: 15}),
        ({0: 36, 1: 14}, {0: 36, 1: 15}),
        ({0: 0, 1: 15}, {0: 36, 1: 15}),
        ({0: 0, 1: 15}, {0: 20, 1: 15}, {0: 36, 1: 15}),
        ({0: 20, 1: 15}, {0: 36, 1: 15}),
        ({0: 36, 1: 15},),
    ],
)
def test_a_backlog_of_an_instance_that_moved_is_counted_once_wherever_batches_are_cut(
    ends: tuple[dict[int, int], ...],
) -> None:
    """A partition was added: 2,016 is right, whichever partition's older records are read first."""
    story, one = Story(), life()
    for hour in range(36):
        story.snapshot("app-1", 28 * (hour + 1), at=hour, seq=hour + 1, life=one, prev=hour - 1 if hour else None)
    for hour in range(36, 50):
        later = 1008 + 72 * (hour - 35)
        story.snapshot("app-1", later, at=hour, seq=hour + 1, life=one, prev=hour - 1, partition=1)
    story.append("script", b'{"name":"n","value":1}', at=80, partition=1)
    tables = story.tables(*ends)
    assert (count_of(tables), tables.dead) == (2016, set())


@pytest.mark.parametrize("retire_after_h", [1, 6, 12, 24, 48, 240])
@pytest.mark.parametrize(("away", "first", "wanted"), [(7, 10, 20), (23, 10, 20), (30, 110, 160)])
def test_retire_after_decides_nothing_about_counts(retire_after_h: int, away: float, first: int, wanted: int) -> None:
    """An outage of 7 h is 20, not 30 with 6 h; one of 30 h is 160, not 210 with 48 h.

    Within 24 h of its `prev` the life goes on; else its reporter refuses the record too, and a new life counts on.
    """
    story, one = Story(), life()
    story.snapshot("app-1", first, at=0, seq=1, life=one)
    story.append("script", b'{"name":"n","value":1}', at=away - 0.1)
    story.snapshot("app-1", wanted, at=away, seq=2, life=one, prev=0)
    if away < 24:
        story.snapshot("app-1", wanted, at=away + 0.5, seq=3, life=one, prev=away)
    else:
        story.snapshot("app-1", wanted - first, at=away, seq=1, life=life(away))
    tables = story.tables(retire_after_ms=retire_after_h * HOUR_MS)
    assert (count_of(tables), len(tables.dead)) == (wanted, int(away >= 24))


def test_silent_lives_stay_silent_after_a_rebuild_of_several_shards() -> None:
    """Five lives fell silent and one reports: after a rebuild the gauge sum is 1 and `lives` 1, not 501 and 6."""
    story = Story()
    names = [f"app-{number}" for number in range(99)]
    for name in [name for name in names if shard_of(name.encode(), 2) == 1][:5]:
        story.snapshot(name, 100, at=0, seq=1, life=life())
    loud = next(name for name in names if shard_of(name.encode(), 2) == 0)
    story.snapshot(loud, 1, at=2, seq=1, life=life(2))
    mine = [[r for r in story.records if shard_of(r.key, 2) == number] for number in (0, 1)]
    standing = LatestRows()
    shards = [Table(State(shard=number, shards=2), settings()) for number in (0, 1)]
    assert _gauge(shards, mine, standing, _ms(2)) == (501, 6)
    assert _gauge(shards[1:], [[]], standing, _ms(3)) == (0, 0)
    rebuilt = [Table(state, settings()) for state in restore(standing).states]
    assert _gauge(rebuilt, [[], []], standing, _ms(3) + 500) == (1, 1)


def _gauge(
    shards: Sequence[Table], mine: Sequence[list[Written]], standing: LatestRows, now_ms: int
) -> tuple[Any, int]:
    """Run a batch; return the sum of the gauge and the number of living lives that these shards have."""
    total, lives = 0.0, 0
    for table, records in zip(shards, mine, strict=True):
        read = [Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records]
        changes = run_batch(table, read, now_ms=now_ms)
        for row in changes.rows:
            standing.add(row.key, row.value(epoch=1, batch=now_ms), (1, now_ms), table.state.shard)
        for life_of in [one for every in table.state.lives.values() for one in every]:
            if life_of.living:
                lives += 1
                total += sum(r.values[0] for n, r in life_of.rows.items() if table.state.metrics[n][2] == "gauge")
    return total, lives


def test_silent_lives_stay_silent_in_a_shard_that_has_not_begun_since_the_table_was_cut() -> None:
    """The checkpoint is lost after a batch of one of two new shards: the other knows the partition's time, too."""
    names = [f"app-{number}" for number in range(99)]
    silent, loud = (next(name for name in names if shard_of(name.encode(), 2) == number) for number in (1, 0))
    story = Story().snapshot(silent, 100, at=0, seq=1, life=life())
    one = life(2)
    for seq in (1, 2, 3):
        story.snapshot(loud, 1, at=2, seq=seq, life=one)
    other = next(name for name in names if shard_of(name.encode(), 2) == 1 and name != silent)
    story.snapshot(other, 1, at=2, seq=1, life=life(2), partition=1)
    tables = Tables(story.records, settings(), 1, random.Random(1))
    for end in (1, 2):
        tables.batch(Batch(_ms(2) + end, {0: end, 1: 0}, all_read=False))
    tables.rebuild(1)
    tables.batch(Batch(_ms(2) + 100, {0: 3, 1: 0}, all_read=False))
    assert [state.published for state in tables.states] == [True, False]
    tables.rebuild()
    tables.batch(Batch(_ms(2) + 200, {0: 4, 1: 1}, all_read=True))
    gauge = tables.sums["shop", "g", "gauge", ()]
    assert (gauge["sum"], gauge["lives"]) == (2, 2)


def test_checkpoints_lost_while_lives_are_forgotten_count_them_once() -> None:
    """Lost and lost again a batch later, while lives leave memory and while they are forgotten: each counts once."""
    story = Story()
    for number in range(8):
        story.snapshot(f"app-{number}", 10, at=0, seq=1, life=life(), name=f"n{number % 3}")
    first = len(story.records)
    for begin in (24, 24 + 24 * 7, 24 * 31):
        for hour in range(10):
            story.append("script", b'{"name":"n","value":1}', at=begin + hour / 2)
    for seed in range(20):
        chance = random.Random(seed)
        tables = Tables(story.records, settings(forget_after_ms=7 * DAY_MS))
        for offset in range(1, len(story.records) + 1):
            batch = Batch(story.records[offset - 1].timestamp_ms, {0: offset}, all_read=True)
            while offset > first and chance.random() < 0.5:
                tables.batch(batch, written=chance)
                tables.rebuild()
            tables.batch(batch)
            assert count_of(tables) == 10 * min(offset, 8), (seed, offset)
        assert tables.dead == set()


def test_what_an_earlier_cut_into_shards_left_does_not_count_while_the_table_is_cut_again() -> None:
    """Lives move to other partitions of `metrics-table` twice, are forgotten there, and checkpoints are lost meanwhile.

    What stays behind of them, in partitions of an earlier cut and of a cut that was given up, is ignored.
    """
    story = Story()
    for number in range(12):
        story.snapshot(f"app-{number}", 10, at=0, seq=1, life=life(), name=f"n{number % 3}")
    first = len(story.records)
    for hour in range(24 * 8, 24 * 8 + 8):
        story.append("script", b'{"name":"n","value":1}', at=hour)
    for seed in range(8):
        chance = random.Random(seed)
        tables = Tables(story.records, settings(forget_after_ms=7 * DAY_MS), 2, chance)
        at = story.records[-1].timestamp_ms
        tables.batch(Batch(_ms(0), {0: first}, all_read=True))
        for end, more in ((first, 1), (first, 1), (first + 8, 2), (first + 8, 2)):
            batch = Batch(_ms(24 * 8), {0: end}, all_read=True)
            tables.rebuild(more)
            while chance.random() < 0.7:
                tables.batch(batch, written=chance)
                tables.rebuild()
                tables.batch(Batch(0, {0: 0}, all_read=True))
                assert count_of(tables) == 120, (seed, tables.shards)
            for number in range(8):
                tables.batch(batch._replace(wall_ms=at + number))
            tables.compact()
        assert count_of(tables) == 120, seed
