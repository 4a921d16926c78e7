"""The stateful processor, run by Spark's own tester without Spark: state, silence, and rows for three topics."""

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
from tallystream_aggregator.spark.checkpoint import Planned
from tallystream_aggregator.spark.query.processor import MAX_FRAME_BYTES, SparkStore, TableProcessor, batch_id, frames
from tallystream_aggregator.table.rows import ShardRow
from tallystream_aggregator.table.state import State, StateVersionError, pack
from tallystream_aggregator.table.storage import load
from tallystream_aggregator.table.table import TableSettings

if TYPE_CHECKING:
    from pathlib import Path

LIFE = "00000000000000000000000001"
TOPICS = Topics("t-")


class Job(TwsTester):
    """Runs batches with the number 17 at the time `now_ms`, which leave records of the partitions `waiting` unread."""

    def __init__(self, shards: int = 1) -> None:
        self.now_ms, self.waiting = 1000, frozenset[str]()
        self.processor = TableProcessor(
            TOPICS, TableSettings(), epoch=3, shards=shards, planned=self._planned, batch_id=lambda: 17
        )
        super().__init__(self.processor, outputMode="Update")

    def _planned(self, batch: int) -> Planned:
        assert batch == 17
        return Planned(self.now_ms, self.waiting)


def _snapshot(seq: int, count: int, *, final: bool = False) -> bytes:
    metrics: list[record.Metric] = [record.Counter(name="n", count=count), record.Gauge(name="g", value=1.5)]
    snapshot = record.Snapshot(
        app="orders", life=LIFE, part=0, seq=seq, ts=0, every_ms=1000, final=final, metrics=metrics
    )
    return record.encode(snapshot)


def _rows(*values: tuple[int, int, bytes | None], key: bytes = b"app-1", partition: int = 0) -> pd.DataFrame:
    rows = [("t-metrics", partition, offset, ts_ms, key, value) for offset, ts_ms, value in values]
    return pd.DataFrame(rows, columns=list(INPUT_COLUMNS))


def test_rows_go_to_spark_in_pieces_of_bytes() -> None:
    """Its JVM has a piece in memory as a whole: many large rows are several pieces, in order; no rows are one."""
    rows = [("t", b"key", bytes(MAX_FRAME_BYTES // 3), number, None) for number in range(7)]
    found = list(frames(rows, "topic", "key", "value", "partition", "writer"))
    assert [piece["partition"].tolist() for piece in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [len(piece) for piece in frames([], "topic", "key")] == [0]


def _sums(frame: pd.DataFrame) -> dict[str, sums.Sum]:
    values = frame[frame["topic"] == TOPICS.agg]["value"]
    return {row.name: row for row in map(sums.decode, values)}


def test_a_batch_gives_the_sums_with_their_writer_and_what_they_include() -> None:
    """Two snapshots in one batch give one row a metric: the newer's value, the epoch, the batch, the last offset."""
    tester = Job()
    out = _sums(tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10)), (1, 950, _snapshot(2, 25)))))
    assert out["n"].count == 25
    assert (out["n"].epoch, out["n"].batch, out["n"].offsets) == (3, 17, {"t-metrics": {"0": 1}})
    assert out["g"].sum == 1.5


def test_records_are_applied_in_offset_order_however_they_arrive() -> None:
    """A shuffle may hand the records over in any order."""
    tester = Job()
    shuffled = _rows((2, 970, None), (0, 900, _snapshot(1, 10)), (1, 950, _snapshot(2, 25)))
    assert _sums(tester.testInPandas(0, shuffled))["n"].count == 0


def test_a_batch_with_more_bytes_than_stay_in_memory_is_applied_in_offset_order() -> None:
    """Eighty snapshots of 1 MiB, the newest first: the last one counts, none is stale, none is refused."""
    tester = Job()
    more = b'{"more":"' + b"x" * (1_048_576 - 1_000) + b'",'
    large = [(offset, 900, more + _snapshot(offset + 1, offset)[1:]) for offset in reversed(range(80))]
    out = tester.testInPandas(0, _rows(*large))
    assert _sums(out)["n"].count == 79
    assert set(out["topic"]) == {TOPICS.agg, TOPICS.table}
    assert load(SparkStore(tester.handle), TableSettings()).table.state.stale == 0


def test_the_table_is_kept_between_batches() -> None:
    """An older seq in a later batch is stale: it changes nothing and publishes nothing."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(2, 25))))
    assert _sums(tester.testInPandas(0, _rows((1, 950, _snapshot(1, 10))))) == {}
    state = load(SparkStore(tester.handle), TableSettings()).table.state
    assert (state.stale, state.offsets) == (1, {"t-metrics:0": 1})


def test_a_table_in_memory_that_is_not_what_is_stored_is_read_again() -> None:
    """A batch that ran in another worker, or runs again because its write was lost, starts from what is stored."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    head, entries = tester.peekValueState("table", 0), tester.peekMapState("log", 0)
    lost = _sums(tester.testInPandas(0, _rows((1, 950, _snapshot(2, 25)))))
    tester.updateValueState("table", 0, head)  # type: ignore[arg-type]  # there was a batch
    tester.updateMapState("log", 0, entries)
    again = _sums(tester.testInPandas(0, _rows((1, 950, _snapshot(2, 25)))))
    assert again == lost
    assert again["n"].count == 25


def test_the_shard_s_record_says_how_large_the_table_is() -> None:
    """What it counted since it began, what there is now, and the bytes of the state that goes with it."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(2, 25)), (1, 910, b"{")))
    out = tester.testInPandas(0, _rows((2, 950, _snapshot(1, 10))))
    (value,) = out[out["key"] == b'["shard",0]']["value"]
    said = msgspec.json.decode(value, type=ShardRow)
    assert (said.records, said.stale, said.dead, said.forgotten) == (3, 1, 1, 0)
    assert (said.lives, said.living, said.instances, said.rows, said.metrics) == (1, 1, 1, 2, 2)
    assert said.state_bytes == sum(len(entry) for (entry,) in tester.peekMapState("log", 0).values())


def test_a_life_is_forgotten_by_a_batch_that_leaves_no_record_unread() -> None:
    """What waits may hold a record of a life that moved to another partition: it is read first."""
    day_ms = 86_400_000
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    listed = []
    for offset, waiting in enumerate((["t-metrics:1"], ["t-metrics:0"], []), 1):
        tester.now_ms, tester.waiting = 40 * day_ms + offset, frozenset(waiting)
        tick = (offset, 40 * day_ms, b'{"name":"t","value":%d}' % offset)
        keys = tester.testInPandas(0, _rows(tick, key=b"script"))["key"]
        listed.append([key[:12] for key in keys].count(b'["forgetting'))
    assert listed == [0, 0, 1]


def test_dead_letters_and_events_go_to_their_topics() -> None:
    """What can't be read, and a tombstone, leave a row each on their own topic."""
    tester = Job()
    out = tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10)), (1, 950, b"{"), (2, 960, None)))
    by_topic = {topic: [msgspec.json.decode(v) for v in rows["value"]] for topic, rows in out.groupby("topic")}
    assert [row["offset"] for row in by_topic[TOPICS.dead]] == [1]
    assert [row["kind"] for row in by_topic[TOPICS.events]] == ["tombstone"]


def _wake_up(tester: Job, now_ms: int) -> pd.DataFrame:
    """Run a batch with nothing but a tombstone of nobody, in another partition, whose clock says nothing."""
    tester.now_ms = now_ms
    return tester.testInPandas(0, _rows((now_ms, 0, None), key=b"nobody", partition=1))


def test_silence_is_noticed_by_the_wall_clock_though_nothing_arrives() -> None:
    """Three intervals after the last record the gauge is gone and the counter stands, at the time of falling silent."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    assert _sums(_wake_up(tester, 3999)) == {}
    out = _sums(_wake_up(tester, 4000))
    assert (out["n"].count, out["n"].lives, out["n"].ts) == (10, 0, 900 + 3000)
    assert (out["g"].number, out["g"].sum) == (0, None)


def test_no_life_is_silent_whose_records_wait() -> None:
    """A batch that leaves records of its partition unread says nothing about it, however late it is."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    tester.waiting = frozenset(["t-metrics:0"])
    assert _sums(_wake_up(tester, 9000)) == {}
    tester.waiting = frozenset(["t-metrics:1"])
    assert _sums(_wake_up(tester, 9001))["n"].lives == 0


def test_the_shard_s_record_says_when_silence_has_to_be_looked_for_next() -> None:
    """What a driver that runs batches for records only has to know: also after a batch that changed nothing else."""

    def due_ms(out: pd.DataFrame) -> int:
        (value,) = out[out["key"] == b'["shard",0]']["value"]
        return msgspec.json.decode(value, type=ShardRow).due_ms

    tester = Job()
    assert due_ms(tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))) == 4000
    tester.now_ms = 3500
    assert due_ms(tester.testInPandas(0, _rows((1, 3400, _snapshot(2, 11))))) == 4000
    assert due_ms(_wake_up(tester, 4100)) == 6500
    assert due_ms(_wake_up(tester, 6600)) == 0


def test_a_request_is_carried_out_once_and_again_where_its_batch_runs_again(tmp_path: Path) -> None:
    """By the writer that asks; the shard's record says which request it was, as long as there is one."""
    path, number = tmp_path / "c.repair", 17
    planned = Planned(1000, frozenset())
    processor = TableProcessor(
        TOPICS, TableSettings(), epoch=3, repair=path, planned=lambda _batch: planned, batch_id=lambda: number
    )
    tester = TwsTester(processor, outputMode="Update")

    def published(offset: int) -> tuple[list[bytes], list[str], int]:
        """Return the keys of lives, the names of sums, and the number of the request, of a batch with a tombstone."""
        out = tester.testInPandas(0, pd.DataFrame([("t-metrics", 0, offset, 950, b"x", None)], columns=INPUT_COLUMNS))
        (said,) = out[out["key"] == b'["shard",0]']["value"]
        lives = [key for key in out["key"] if key.startswith(b'["life"')]
        return lives, list(_sums(out)), msgspec.json.decode(said, type=ShardRow).repaired

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


def test_a_state_of_another_version_is_refused() -> None:
    """A state that this table can't read stops the query instead of counting from zero."""
    tester = Job()
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    tester.updateValueState("table", 0, (pack(State(version=99)),))
    with pytest.raises(Exception, match="version 99"):
        tester.testInPandas(0, _rows((1, 950, _snapshot(2, 11))))


def test_a_state_of_another_number_of_shards_is_refused() -> None:
    """It holds other instances than the shard of the same number: nothing is summed."""
    tester = Job(shards=2)
    tester.testInPandas(0, _rows((0, 900, _snapshot(1, 10))))
    tester.processor._shards = 4
    with pytest.raises(
        StateVersionError, match=r"shard 0 is one of 2, .*CHECKPOINT\.sharding says 4; restore that file"
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
