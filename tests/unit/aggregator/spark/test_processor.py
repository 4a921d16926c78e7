"""The stateful processor, run by Spark's tester without Spark: its state, its rows, and silent lives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pandas as pd
import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.tws_tester import TwsTester

from tallystream import record
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.repair_request import Request, write_request
from tallystream_aggregator.spark.catch_up.encoding import INPUT_COLUMNS
from tallystream_aggregator.spark.query.processor import (
    MAX_FRAME_BYTES,
    SparkStore,
    TableProcessor,
    batch_id,
    frames,
    import_modules,
)
from tallystream_aggregator.table.clock_record import CLOCK_KEY, clock_value
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.rows import ShardRow
from tallystream_aggregator.table.state import State, StateVersionError, pack
from tallystream_aggregator.table.storage import load
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from pathlib import Path

LIFE = "00000000000000000000000001"
TOPICS = Topics("t-")


class Job(TwsTester):
    """Runs batches with the number 17."""

    def __init__(self, shards: int = 1) -> None:
        self.processor = TableProcessor(TOPICS, TableSettings(), epoch=3, shards=shards, batch_id=lambda: 17)
        super().__init__(self.processor, outputMode="Update")


def _snapshot(seq: int, count: int, *, final: bool = False) -> bytes:
    metrics: list[record.Metric] = [record.Counter(name="n", count=count), record.Gauge(name="g", value=1.5)]
    snapshot = record.Snapshot(
        app="orders", life=LIFE, part=0, seq=seq, ts=0, every_ms=1000, final=final, metrics=metrics
    )
    return record.encode(snapshot)


def _rows(*values: tuple[int, int, bytes | None], key: bytes = b"app-1", partition: int = 0) -> pd.DataFrame:
    rows = [("t-metrics", partition, offset, ts_ms, key, value) for offset, ts_ms, value in values]
    return pd.DataFrame(rows, columns=list(INPUT_COLUMNS))


def test_frames_have_a_limited_size() -> None:
    """Spark's JVM has a complete frame in memory. Without rows there is one empty frame."""
    rows = [("t", b"key", bytes(MAX_FRAME_BYTES // 3), number, None) for number in range(7)]
    found = list(frames(rows, "topic", "key", "value", "partition", "writer"))
    assert [piece["partition"].tolist() for piece in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [len(piece) for piece in frames([], "topic", "key")] == [0]


def _sums(frame: pd.DataFrame) -> dict[str, sums.Sum]:
    values = frame[frame["topic"] == TOPICS.agg]["value"]
    return {row.name: row for row in map(sums.decode, values)}


def test_a_sum_has_its_version_and_offsets() -> None:
    """Two snapshots in a batch give one row for each metric, with the value of the newer one."""
    tester = Job()
    out = _sums(tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10)), (1, 950, _snapshot(2, 25)))))
    assert out["n"].count == 25
    assert (out["n"].epoch, out["n"].batch, out["n"].offsets) == (3, 17, {"t-metrics": {"0": 1}})
    assert out["g"].sum == 1.5


def test_records_are_applied_in_offset_order() -> None:
    """A shuffle may change their order."""
    tester = Job()
    shuffled = _rows((2, 970, None), (0, 900, _snapshot(1, 10)), (1, 950, _snapshot(2, 25)))
    assert _sums(tester.testInPandas(0, shuffled))["n"].count == 0


def test_a_batch_larger_than_memory_is_applied_in_offset_order() -> None:
    """Of eighty snapshots of 1 MiB, the newest comes first. None of them is stale."""
    tester = Job()
    more = b'{"more":"' + b"x" * (1_048_576 - 1_000) + b'",'
    large = [(offset, 900, more + _snapshot(offset + 1, offset)[1:]) for offset in reversed(range(80))]
    out = tester.testInPandas(0, _rows(*large))
    assert _sums(out)["n"].count == 79
    assert set(out["topic"]) == {TOPICS.agg, TOPICS.table}
    assert load(SparkStore(tester.handle), TableSettings()).table.state.stale == 0


def test_the_table_is_kept_between_batches() -> None:
    """An older seq in a later batch is stale, and publishes nothing."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(2, 25))))
    assert _sums(tester.testInPandas(0, _rows((1, 950, _snapshot(1, 10))))) == {}
    state = load(SparkStore(tester.handle), TableSettings()).table.state
    assert (state.stale, state.offsets) == (1, {"t-metrics:0": 1})


def test_a_table_in_memory_that_differs_from_the_state_is_read_again() -> None:
    """A batch ran in another worker, or runs again because it was not committed."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    head, entries = tester.peekValueState("table", 0), tester.peekMapState("log", 0)
    lost = _sums(tester.testInPandas(0, _rows((1, 950, _snapshot(2, 25)))))
    tester.updateValueState("table", 0, head)  # type: ignore[arg-type]  # there was a batch
    tester.updateMapState("log", 0, entries)
    again = _sums(tester.testInPandas(0, _rows((1, 950, _snapshot(2, 25)))))
    assert again == lost
    assert again["n"].count == 25


def test_the_record_of_a_shard_has_the_size_of_the_table() -> None:
    """It has totals since the beginning, current numbers, and the bytes of the state."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(2, 25)), (1, 910, b"{")))
    out = tester.testInPandas(0, _rows((2, 950, _snapshot(1, 10))))
    (value,) = out[out["key"] == b'["shard",0]']["value"]
    row = msgspec.json.decode(value, type=ShardRow)
    assert (row.records, row.stale, row.dead, row.forgotten) == (3, 1, 1, 0)
    assert (row.lives, row.living, row.instances, row.rows, row.metrics) == (1, 1, 1, 2, 2)
    assert row.state_bytes == sum(len(entry) for (entry,) in tester.peekMapState("log", 0).values())


def _clock(offset: int, at_ms: int) -> pd.DataFrame:
    """Return a clock record."""
    return _rows((offset, at_ms, clock_value(at_ms)), key=CLOCK_KEY)


def test_a_clock_record_forgets_a_life() -> None:
    """Its row is deleted in the batch that has the record."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    out = tester.testInPandas(0, _clock(1, 900 + 7 * 86_400_000))
    assert [key[:12] for key in out[out["value"].isna()]["key"]] == [b'["life","ord']
    assert (_sums(out)["n"].count, _sums(out)["n"].retired) == (10, 1)


def test_dead_letters_and_events_go_to_their_topics() -> None:
    """A record that can't be decoded is a dead letter, and a tombstone is an event."""
    tester = Job()
    out = tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10)), (1, 950, b"{"), (2, 960, None)))
    by_topic = {topic: [msgspec.json.decode(v) for v in rows["value"]] for topic, rows in out.groupby("topic")}
    assert [row["offset"] for row in by_topic[TOPICS.dead]] == [1]
    assert [row["kind"] for row in by_topic[TOPICS.events]] == ["tombstone"]


def test_a_life_is_silent_by_the_clock_of_its_partition() -> None:
    """Three intervals after the last record its gauge is removed and its counter stays."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    assert _sums(tester.testInPandas(0, _clock(1, 3899))) == {}
    out = _sums(tester.testInPandas(0, _clock(2, 3900)))
    assert (out["n"].count, out["n"].lives, out["n"].ts) == (10, 0, 3900)
    assert (out["g"].number, out["g"].sum) == (0, None)


def test_a_repair_request_is_carried_out_by_one_batch(tmp_path: Path) -> None:
    """The batch carries it out again if it runs again. The shard's record has the number of the request."""
    path, number = tmp_path / "c.repair", 17
    processor = TableProcessor(TOPICS, TableSettings(), epoch=3, repair=path, batch_id=lambda: number)
    tester = TwsTester(processor, outputMode="Update")

    def published(offset: int) -> tuple[list[bytes], list[str], int]:
        """Return the keys of lives, the names of sums, and the number of the request, of a batch with a tombstone."""
        out = tester.testInPandas(0, pd.DataFrame([("t-metrics", 0, offset, 950, b"x", None)], columns=INPUT_COLUMNS))
        (shard_row,) = out[out["key"] == b'["shard",0]']["value"]
        lives = [key for key in out["key"] if key.startswith(b'["life"')]
        return lives, list(_sums(out)), msgspec.json.decode(shard_row, type=ShardRow).repaired

    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    life = f'["life","orders","app-1","{LIFE}",0]'.encode()
    request = Request(3, 1, {0: [life], 1: [b"another shard's"]}, [b'["orders","counter","n",[]]'])
    assert published(1) == ([], [], 0)
    write_request(path, msgspec.structs.replace(request, epoch=2))
    assert published(2) == ([], [], 0)
    write_request(path, request)
    assert published(3) == published(4) == ([life], ["n"], 1)
    number = 18
    assert published(5) == ([], [], 1)
    write_request(path, msgspec.structs.replace(request, number=2))
    assert published(6) == ([life], ["n"], 2)
    path.unlink()
    assert published(7) == ([], [], 0)


def test_the_record_of_a_shard_has_the_epoch_in_which_the_table_began() -> None:
    """A rebuild then leaves out rows of an earlier table on the same topic."""
    tester = Job()
    tester.processor._since = 3
    out = tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    rows = out[(out["topic"] == TOPICS.table) & out["key"].map(lambda key: key.startswith(b'["shard"'))]["value"]
    assert [msgspec.json.decode(row)["since"] for row in rows] == [3]


def test_a_state_of_another_version_is_an_error() -> None:
    """The query stops, and does not begin with an empty table."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    tester.updateValueState("table", 0, (pack(State(version=99)),))
    with pytest.raises(Exception, match="version 99"):
        tester.testInPandas(0, _rows((1, 950, _snapshot(2, 11))))


def test_a_state_of_another_number_of_shards_is_an_error() -> None:
    """Its shard has other instances."""
    tester = Job(shards=2)
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    tester.processor._shards = 4
    with pytest.raises(
        StateVersionError, match=r"shard 0 is one of 2, .*CHECKPOINT\.sharding says 4; restore that file"
    ):
        tester.testInPandas(0, _rows((1, 950, _snapshot(2, 11))))


def test_a_state_whose_sums_have_other_tags_is_an_error() -> None:
    """The file beside the checkpoint was lost, or is that of another table."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    tester.processor._sum_tags = SumTags(drop=("pod",))
    with pytest.raises(
        StateVersionError, match=r"shard 0 has all tags, and .*CHECKPOINT\.sharding says --drop-tag pod; restore that"
    ):
        tester.testInPandas(0, _rows((1, 950, _snapshot(2, 11))))


@pytest.mark.parametrize("task", [None, SimpleNamespace(getLocalProperty=lambda _name: None)], ids=["none", "batch"])
def test_a_batch_number_that_spark_does_not_give_is_an_error(
    task: SimpleNamespace | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong number would give sums a wrong version, so it is never replaced by 0."""
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    with pytest.raises(RuntimeError, match="only known in a task"):
        batch_id()


def test_the_modules_that_warm_workers_import_exist() -> None:
    """One of them is private to PySpark, and a failure in a worker would only be logged (docs/cluster.md)."""
    assert list(import_modules([1])) == [1]
