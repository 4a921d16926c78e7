"""Which records compaction keeps, and how a table applies a record that supersedes others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.compaction import compact, span_reader, table_records
from support.schedules import BEGIN_MS, TopicRecord
from tallystream_aggregator.table import Changes, State, Table, TableSettings
from tallystream_aggregator.table import compaction as module
from tallystream_aggregator.table.compaction import ExpansionNeededError, expand
from tallystream_aggregator.table.decode import Record, Superseded
from tallystream_aggregator.table.shards import shard_of

HOUR_MS = 3_600_000
SETTINGS = TableSettings(retire_after_ms=10_000 * HOUR_MS)
LIFE = "01HF7YAT00AAAAAAAAAAAAAAAA"  # of BEGIN_MS
OTHER = "01HF7YAT00BBBBBBBBBBBBBBBB"


class Topic:
    """Builds the records of one partition."""

    def __init__(self) -> None:
        self.written: list[TopicRecord] = []

    def add(self, value: bytes | str | None, *, key: bytes = b"app-1", at: int | None = None) -> Topic:
        """Append a value. Its append time is a second after that of the record before, unless `at` is given."""
        offset = len(self.written)
        at = BEGIN_MS + 1_000 * offset if at is None else at
        self.written.append(TopicRecord(key, value.encode() if isinstance(value, str) else value, at, 0, offset))
        return self

    def counts(self, *values: int, name: str = "orders", key: bytes = b"app-1") -> Topic:
        """Append a counter's values in the short form."""
        for value in values:
            self.add(json.dumps({"name": name, "value": value}, separators=(",", ":")), key=key)
        return self

    def snapshots(self, *seqs: int, key: bytes = b"app-1", **changed: Any) -> Topic:
        """Append snapshots with one counter, whose count is the seq. `changed` overrides fields of the header."""
        for seq in seqs:
            self.add(snapshot(seq, **changed), key=key)
        return self

    def kept(self, settings: TableSettings = SETTINGS) -> list[int]:
        """Return the offsets that compaction keeps."""
        return [record.offset for record in compact(table_records(self.written), settings)]

    def records(self, settings: TableSettings = SETTINGS) -> list[Record]:
        """Return what compaction keeps."""
        return compact(table_records(self.written), settings)


def snapshot(seq: int, *, metrics: list[dict[str, Any]] | None = None, **changed: Any) -> str:
    header = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": seq, "prev": BEGIN_MS, "ts": BEGIN_MS}
    header |= {"every_ms": 1000, "final": False, **changed}
    return json.dumps(header | {"metrics": [counter(seq)] if metrics is None else metrics})


def counter(count: int, name: str = "orders", **tags: str) -> dict[str, Any]:
    return {"type": "counter", "name": name, "tags": tags, "count": count}


def test_of_a_counter_that_never_falls_the_first_and_the_last_value_are_kept() -> None:
    """Values in between are dropped, also equal ones. The last record has their number and the value before them."""
    records = Topic().counts(3, 4, 4, 9, 9).records()
    assert [(record.offset, record.superseded) for record in records] == [(0, None), (4, Superseded(3, 3, 0))]


def test_both_sides_of_a_fall_are_kept() -> None:
    """A restart is an event with an offset, so the runs before and after it are compacted separately."""
    records = Topic().counts(3, 5, 9, 2, 4, 6).records()
    found = [(record.offset, record.superseded) for record in records]
    assert found == [(0, None), (2, Superseded(1, 3, 0)), (3, None), (5, Superseded(1, 2, 3))]


def test_counters_and_instances_are_compacted_apart() -> None:
    """Another name, other tags or another key is another run."""
    topic = Topic().counts(1, 2, 3).counts(9, 8, name="b").counts(5, key=b"app-2")
    topic.add('{"name":"orders","value":2,"tags":{"k":"v"}}').counts(4)
    assert topic.kept() == [0, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "spelled",
    [
        '{"name":"orders","value":5}',
        '{"name": "orders", "value": 5}',
        '{"value":5,"name":"orders"}',
        '{"name":"orders","value":5,"tags":{}}',
        '{"n\\u0061me":"orders","value":5}',
        '{"name":"orders","value":3,"value":5}',
        '{ "value" : 5, "name" : "orders" }',
        '{"name":"orders","value":5,"x":{"value":9}}',
    ],
)
def test_a_counter_is_one_however_it_is_spelled(spelled: str) -> None:
    """All ways to write a metric of the short form are values of the same run."""
    topic = Topic().counts(4)
    for _ in range(3):
        topic.add(spelled)
    assert topic.counts(6).kept() == [0, 4]


@pytest.mark.parametrize(
    "odd",
    [
        '{"name":"orders","value":05}',
        '{"name":"orders","value":-5}',
        '{"name":"orders","value":5.0}',
        '{"name":"orders","value":9223372036854775808}',
        '{"name":"orders","value":5]',
        '{"name":"","value":5}',
        '{"name":"orders","x":{"value":5}}',
        '{"name":"orders","value":"5"}',
        b'{"name":"\xff","value":5}',
        b"",
    ],
)
def test_what_cannot_be_read_is_kept_and_ends_no_run(odd: str | bytes) -> None:
    """Every dead letter is kept and does not affect other records."""
    assert Topic().counts(4).add(odd).add(odd).add(odd).counts(5, 6).kept() == [0, 1, 2, 3, 5]


def test_a_value_of_19_digits_is_a_value() -> None:
    """The largest count is compacted like any other."""
    assert Topic().counts(1, 2**62, 2**63 - 1).kept() == [0, 2]


def test_a_tombstone_ends_the_runs_of_its_instance_alone() -> None:
    """Later records start new runs, because the table has no rows of the instance any more."""
    topic = Topic().counts(1, 2, 3).counts(1, 2, key=b"app-2").snapshots(1, 2, 3).add(None).counts(4, 5, 6)
    topic.snapshots(4, 5, 6).counts(3, key=b"app-2")
    assert topic.kept() == [0, 2, 3, 5, 7, 8, 9, 11, 12, 14, 15]


@pytest.mark.parametrize(("named", "others"), [({}, []), ({"life": LIFE}, []), ({"metric": "n"}, [4])])
def test_a_forget_record_ends_the_runs_of_what_may_lose_rows(named: dict[str, str], others: list[int]) -> None:
    """It ends the runs of its instance. If it names a metric, it ends those of all instances (`others`)."""
    topic = Topic().counts(1, 2, 3).counts(1, 2, key=b"app-2").snapshots(1, 2, 3).add(json.dumps({"forget": named}))
    topic.counts(4, 5, 6).snapshots(4, 5, 6).counts(3, key=b"app-2")
    assert topic.kept() == sorted([0, 2, 3, *others, 5, 7, 8, 9, 11, 12, 14, 15])


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"nul\0", b"k" * 1025])
def test_records_without_an_instance_are_kept(key: bytes | None) -> None:
    """A key that can't be read makes each record a dead letter."""
    topic = Topic()
    topic.written = [TopicRecord(key, b'{"name":"a","value":1}', BEGIN_MS, 0, offset) for offset in range(4)]
    assert topic.kept() == [0, 1, 2, 3]


def test_a_record_that_is_too_large_is_kept() -> None:
    """Each is a dead letter and an event."""
    small = TableSettings(max_record_bytes=40)
    large = json.dumps({"name": "orders", "value": 5, "x": "y" * 40})
    assert Topic().counts(1, 2).add(large).add(large).add(large).counts(3).kept(small) == [0, 2, 3, 4, 5]


def test_of_snapshots_in_rising_seq_the_first_and_the_last_are_kept() -> None:
    """The last one has the number of superseded records, and the seq and offset of the record before them."""
    records = Topic().snapshots(1, 2, 3, 4).records()
    assert [(r.offset, r.superseded) for r in records] == [(0, None), (3, Superseded(2, 1, 0))]


def test_parts_lives_and_apps_are_compacted_apart() -> None:
    """Each part of a life is a run of its own."""
    topic = Topic().snapshots(1, 2, 3).snapshots(1, 2, 3, part=1).snapshots(1, 2, 3, life=OTHER)
    assert topic.snapshots(1, 2, 3, app="mail").snapshots(4).kept() == [0, 3, 5, 6, 8, 9, 11, 12]


def test_a_stale_snapshot_is_kept_and_so_is_the_one_before_it() -> None:
    """The table needs the highest seq to see that the snapshot is stale. The run continues after it."""
    records = Topic().snapshots(1, 2, 3, 3, 2, 4, 5).records()
    assert [record.offset for record in records] == [0, 2, 3, 4, 6]
    assert records[-1].superseded == Superseded(1, 3, 2)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("final", {"final": True}),
        ("a metric more", {"metrics": [counter(3), counter(3, "b")]}),
        ("another name", {"metrics": [counter(3, "b")]}),
        ("other tags", {"metrics": [counter(3, k="v")]}),
        ("another type", {"metrics": [{"type": "meter", "name": "orders", "count": 3}]}),
        ("a metric twice", {"metrics": [counter(3), counter(3)]}),
        ("a metric that can't be read", {"metrics": [counter(3), counter(-1)]}),
        ("none", {"metrics": []}),
    ],
)
def test_a_snapshot_that_is_not_like_the_one_before_is_kept(name: str, changed: dict[str, Any]) -> None:
    """The snapshot before it is kept, too, and so is the one after it, which starts a run."""
    topic = Topic().snapshots(1, 2).snapshots(3, **changed).snapshots(4, 5, 6)
    assert topic.kept() == [0, 1, 2, 3, 5], name


@pytest.mark.parametrize(
    ("before", "bad"),
    [
        ({"type": "gauge", "value": 1}, {"type": "gauge", "value": 10**300 * 10**100}),
        ({"type": "histogram", "count": 1}, {"type": "histogram", "count": 1, "sketch": {"scale": 6}}),
        ({"type": "timer", "count": 0}, {"type": "timer", "count": 0, "sketch": "?"}),
    ],
)
def test_a_snapshot_with_a_metric_that_the_table_refuses_is_kept(before: dict[str, Any], bad: dict[str, Any]) -> None:
    """A sketch that can't be read, or a number beyond floats, is a dead letter each time."""
    topic = Topic().snapshots(1, 2, metrics=[{"name": "m", **before}])
    topic.snapshots(3, 4, 5, metrics=[{"name": "m", **bad}])
    assert topic.snapshots(6, metrics=[{"name": "m", **before}]).kept() == [0, 1, 2, 3, 4, 5]


def test_snapshots_that_have_a_metric_twice_are_kept() -> None:
    """The second one is a dead letter each time, so no run begins with such a snapshot."""
    topic = Topic().snapshots(1, 2, 3, metrics=[counter(1), counter(1)])
    assert topic.kept() == [0, 1, 2]


@pytest.mark.parametrize(
    ("high", "low"),
    [
        (counter(9), counter(8)),
        ({"type": "meter", "name": "m", "count": 9}, {"type": "meter", "name": "m", "count": 8}),
        ({"type": "timer", "name": "m", "count": 9}, {"type": "timer", "name": "m", "count": 8}),
    ],
)
def test_after_a_count_that_falls_within_a_life_all_is_kept(high: dict[str, Any], low: dict[str, Any]) -> None:
    """Each value below the highest is a dead letter."""
    topic = Topic().snapshots(1, 2, 3, metrics=[high]).snapshots(4, 5, 6, metrics=[low])
    assert topic.snapshots(7, metrics=[high]).kept() == [0, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("after", [{"start": 0, "position": 4}, {"start": 1, "position": 6}])
def test_a_position_that_goes_back_is_kept(after: dict[str, int]) -> None:
    """A position keeps the highest value and the lowest start, and a dropped snapshot could have either."""
    topic = Topic()
    for seq, fields in enumerate([{"start": 0, "position": 1}, {"start": 0, "position": 5}, after, after], start=1):
        topic.snapshots(seq, metrics=[{"type": "position", "name": "p", **fields}])
    assert topic.kept() == [0, 1, 2, 3]


@pytest.mark.parametrize("narrower", [{"min": 2, "max": 9}, {"min": 1, "max": 8}, {"min": 1}, {"max": 9}])
def test_a_histogram_whose_extremes_narrow_is_kept(narrower: dict[str, int]) -> None:
    """Within a life min and max only widen, and a dropped snapshot could have either. It starts the next run."""
    topic = Topic()
    wide = {"min": 1, "max": 9}
    for seq, extremes in enumerate([wide, wide, wide, narrower, narrower, narrower], start=1):
        topic.snapshots(seq, metrics=[{"type": "histogram", "name": "h", "count": 2, **extremes}])
    assert topic.kept() == [0, 2, 3, 5]


def test_gauges_and_rates_may_rise_and_fall_within_a_run() -> None:
    """Only the last value of a gauge or rate counts at the end of a batch."""
    topic = Topic()
    for seq, value in enumerate([5, -1, 2.5, 3], start=1):
        meter = {"type": "meter", "name": "m", "count": 1, "m1_rate": value}
        topic.snapshots(seq, metrics=[{"type": "gauge", "name": "g", "value": value}, meter])
    assert topic.kept() == [0, 3]


@pytest.mark.parametrize(
    ("name", "changed", "at_h"),
    [
        ("a prev of a day ago", {"prev": BEGIN_MS}, 24),
        ("without prev, a ULID of a day ago", {"prev": None}, 24),
        ("a ULID of more than a day ahead", {"prev": BEGIN_MS}, -25),
    ],
)
def test_a_snapshot_that_is_late_or_early_is_kept_and_ends_the_run(name: str, changed: Any, at_h: int) -> None:
    """Only its own append time decides, also if the broker's clock jumps. The next snapshot continues the run."""
    topic = Topic().snapshots(1, 2).add(snapshot(3, **changed), at=BEGIN_MS + at_h * HOUR_MS).snapshots(4, 5)
    records = topic.records()
    assert [(r.offset, r.superseded) for r in records] == [
        (0, None),
        (1, None),
        (2, None),
        (4, Superseded(1, 2, 1)),
    ], name
    wanted, raw = judged(table_records(topic.written), topic)
    got, table = judged(records, topic)
    assert [letter.value() for letter in got.dead] == [letter.value() for letter in wanted.dead]
    assert len(got.dead) == 1
    assert table.state == raw.state


def test_a_run_lasts_as_long_as_its_snapshots_are_timely() -> None:
    """A run has no maximum duration, because the append time of one record does not decide about another."""
    topic = Topic()
    for number, day in enumerate((0, 0.9, 1.8, 2.7, 3.6), start=1):
        at = BEGIN_MS + int(day * 24 * HOUR_MS)
        topic.add(snapshot(number, prev=at - 22 * HOUR_MS), at=at)
    assert topic.kept() == [0, 4]


def test_a_kept_record_carries_the_clock_of_those_that_were_dropped() -> None:
    """The partition's clock never goes back, also if the record with the highest append time was dropped."""
    topic = Topic().counts(1)
    topic.add('{"name":"orders","value":2}', at=BEGIN_MS + 9_000)
    topic.add('{"name":"orders","value":3}', at=BEGIN_MS + 5_000)
    last = topic.records()[-1]
    assert (last.timestamp_ms, last.clock_ms) == (BEGIN_MS + 5_000, BEGIN_MS + 9_000)


def test_all_runs_end_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """This limits the memory. New runs start with the next records."""
    monkeypatch.setattr(module, "MAX_RUNS", 3)
    compactor = module.Compactor("metrics", 0, SETTINGS)
    first = Topic().counts(1, 2, 3).counts(1, name="b").written
    second = Topic().counts(4, 5).written
    kept = [
        [record.value for record in compactor.add((r.offset, r.timestamp_ms, r.key, r.value) for r in written)]
        for written in (first, second)
    ]
    assert [len(values) for values in kept] == [3, 1]
    assert len(compactor.end()) == 1


def taken(records: list[Record], table: Table | None = None) -> Table:
    table = table or Table(State(), SETTINGS)
    table.begin_batch()
    table.apply(records)
    table.changes()
    return table


def test_a_record_counts_for_those_that_it_stands_for() -> None:
    """The numbers of records and of stale records in the state include the dropped ones."""
    once = Topic().counts(1, 2, 3).snapshots(1, 2, 3, 4)
    state = taken(once.snapshots(1, 2, 3).records()).state
    assert (state.records, state.stale) == (10, 3)
    first = Topic().snapshots(1, 2, 3, 4).records()
    assert len(first) == 2
    state = taken([record._replace(offset=record.offset + 4) for record in first], taken(first)).state
    assert (state.records, state.stale) == (8, 4)


@pytest.mark.parametrize(
    ("before", "batch"),
    [
        ("a count that falls within the life", lambda: (Topic().snapshots(9), Topic().snapshots(3, 4, 5))),
        ("some are stale", lambda: (Topic().snapshots(3), Topic().snapshots(2, 3, 4))),
        (
            "a metric that was in another part",
            lambda: (Topic().snapshots(1, part=1), Topic().snapshots(1, 2, 3)),
        ),
        (
            "a sum that leaves 64 bits",
            lambda: (Topic().counts(2**62, 2**62 - 1), Topic().counts(2**62 - 1, 2**62, 2**62 + 1)),
        ),
        (
            "a sum that left 64 bits before",
            lambda: (Topic().counts(2**63 - 1), Topic().counts(5, 6, 7)),
        ),
    ],
)
def test_the_table_asks_for_dropped_records_that_may_be_refused_or_stale(before: str, batch: Any) -> None:
    """The error names the instances to expand. With all of their records the state is as without compaction."""
    first, second = batch()
    if before == "a count that falls within the life":
        first = Topic().snapshots(2, metrics=[counter(9)])
    with pytest.raises(ExpansionNeededError) as refused:
        taken(second.records(), taken(table_records(first.written)))
    assert refused.value.instances == {"app-1"}
    raw = table_records(second.written)
    whole = expand(second.records(), refused.value.instances, span_reader(raw))
    assert [record.offset for record in whole] == [record.offset for record in raw]
    got, wanted = (taken(records, taken(table_records(first.written))) for records in (whole, raw))
    assert got.state == wanted.state


def test_the_table_asks_for_dropped_records_that_follow_a_stale_one() -> None:
    """An earlier batch had a record with this seq and another value, so the run's first record is stale."""
    first = taken(Topic().snapshots(1, metrics=[counter(9)]).records())
    topic = Topic().counts(1)
    for seq, count in ((1, 3), (2, 4), (3, 10)):
        topic.snapshots(seq, metrics=[counter(count)])
    with pytest.raises(ExpansionNeededError):
        taken(topic.records(), first)


def test_a_shard_has_a_clock_of_its_own() -> None:
    """The clock of a shard depends only on the records of that shard."""
    topic = Topic().add('{"name":"a","value":1}', key=b"app-1", at=BEGIN_MS + 9_000)
    topic.add('{"name":"a","value":1}', key=b"app-4", at=BEGIN_MS)
    assert shard_of(b"app-1", 2) != shard_of(b"app-4", 2)
    for shards, clock in ((1, BEGIN_MS + 9_000), (2, BEGIN_MS)):
        compactor = module.Compactor("metrics", 0, SETTINGS, shards)
        kept = compactor.add((r.offset, r.timestamp_ms, r.key, r.value) for r in topic.written)
        assert [record.clock_ms for record in kept] == [BEGIN_MS + 9_000, clock]


def test_a_rebuilt_table_asks_for_dropped_records_that_its_rows_may_include() -> None:
    """Only the offsets of the dropped records show which ones the rows include."""
    table = Table(State(), SETTINGS)
    table.state.included = {"metrics:0": 1}
    table.begin_batch()
    with pytest.raises(ExpansionNeededError):
        table.apply(Topic().counts(1, 1, 1, 1).records())
    later = Topic().counts(5, 5).counts(1, 1, 1, key=b"app-2")
    table = Table(State(included={"metrics:0": 1}), SETTINGS)
    assert taken(later.records(), table).state.records == 3


def test_the_table_asks_for_dropped_records_of_a_metric_over_the_limit_of_its_life() -> None:
    """Each of its records is a dead letter."""
    few = TableSettings(max_metrics=1)
    topic = Topic().counts(1, name="a").counts(1, 2, 3, name="b")
    table = Table(State(), few)
    table.begin_batch()
    with pytest.raises(ExpansionNeededError):
        table.apply(topic.records(few))


def test_records_that_are_read_again_have_the_clock_of_the_whole_partition() -> None:
    """The append time of another instance's dropped record still moves the clock for later records."""
    topic = Topic().counts(1, 1, key=b"app-2").counts(1)
    topic.add('{"name":"orders","value":1}', key=b"app-2", at=BEGIN_MS + 9_000)
    topic.counts(2, 3).counts(1, key=b"app-2")
    whole = expand(topic.records(), {"app-1"}, span_reader(table_records(topic.written)))
    mine = [(record.offset, record.clock_ms - BEGIN_MS) for record in whole if record.key == b"app-1"]
    assert mine == [(2, 2_000), (4, 9_000), (5, 9_000)]


def test_a_record_that_is_refused_completely_or_in_part_starts_no_run() -> None:
    """Its seq does not show which values the table has: an earlier record with that seq may have been accepted."""
    topic = Topic().snapshots(1).snapshots(3, metrics=[counter(9), counter(9)])
    topic.snapshots(1, 2, 4, 5, 12)
    wanted, raw = judged(table_records(topic.written), topic)
    assert [letter.record.offset for letter in wanted.dead] == [1, 4, 5]
    assert raw.state.stale == 2
    got, table = judged(topic.records(), topic)
    assert [letter.value() for letter in got.dead] == [letter.value() for letter in wanted.dead]
    assert table.state == raw.state


def judged(records: list[Record], topic: Topic) -> tuple[Changes, Table]:
    """Return what a new table makes of records, those that were left out read again where it asks for them."""
    table = Table(State(), SETTINGS)
    table.begin_batch()
    try:
        table.apply(records)
    except ExpansionNeededError as needed:
        whole = expand(records, needed.instances, span_reader(table_records(topic.written)))
        return judged(sorted(whole, key=lambda record: record.offset), topic)
    return table.changes(), table
