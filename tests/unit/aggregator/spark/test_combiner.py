"""The two stages of a table with several shards, run by Spark's tester without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.tws_tester import TwsTester

from tallystream_aggregator import sums
from tallystream_aggregator.initial_state import InitialState, write_initial_state
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.repair_request import Request, write_request
from tallystream_aggregator.spark.catch_up.encoding import INPUT_COLUMNS
from tallystream_aggregator.spark.query.combiner import CombineProcessor
from tallystream_aggregator.spark.query.processor import COLUMNS, TableProcessor
from tallystream_aggregator.table import Record, State, Table, pack
from tallystream_aggregator.table.combiners import combine_shards
from tallystream_aggregator.table.combiners import pack as pack_combined
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.shards import instances as instances_of_shards
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = Topics("t-")
SHARDS = 2
AT_MS = 1_700_000_000_000


class Job:
    """Both stages, with the rows of the first one as the input of the second."""

    def __init__(self, initial_state: Path | None = None, epoch: int = 3, repair: Path | None = None) -> None:
        table = TableProcessor(
            TOPICS,
            TableSettings(),
            epoch=epoch,
            shards=SHARDS,
            initial_state=initial_state,
            repair=repair,
            batch_id=lambda: 17,
        )
        combine_ = CombineProcessor(
            TOPICS, epoch=epoch, shards=SHARDS, initial_state=initial_state, batch_id=lambda: 17
        )
        self.table = TwsTester(table, outputMode="Update")
        self.combine = TwsTester(combine_, outputMode="Update")
        self.offset = 0
        self.deleted: list[tuple[Any, ...]] = []

    def batch(self, *records: tuple[bytes, bytes | None]) -> list[tuple[str, bytes, bytes]]:
        """Run one batch of (instance, value)."""
        by_shard: dict[int, list[tuple[Any, ...]]] = {}
        for key, value in records:
            row = ("t-metrics", 0, self.offset, AT_MS + self.offset, key, value)
            by_shard.setdefault(shard_of(key, SHARDS), []).append(row)
            self.offset += 1
        frames = [
            self.table.testInPandas(shard, pd.DataFrame(rows, columns=list(INPUT_COLUMNS)))
            for shard, rows in by_shard.items()
        ]
        out: list[tuple[str, bytes, bytes]] = []
        for combiner, rows in pd.concat(frames).groupby("combiner"):
            frame = self.combine.testInPandas(combiner, rows[list(COLUMNS)])
            out += frame[["topic", "key", "value"]].itertuples(index=False, name=None)
            self.deleted += [row for row in frame.itertuples(index=False, name=None) if row[COLUMNS.index("writer")]]
        return out


def short(name: str, value: int) -> bytes:
    """Return a value in the short form."""
    return f'{{"name":"{name}","value":{value}}}'.encode()


def counts(out: list[tuple[str, bytes, bytes]]) -> dict[str, int | None]:
    """Return the counts on `metrics-agg`, by name."""
    rows = [sums.decode(value) for topic, _, value in out if topic == TOPICS.agg]
    assert all((row.epoch, row.batch) == (rows[0].epoch, 17) for row in rows)
    return {row.name: row.count for row in rows}


def instances(number: int) -> list[bytes]:
    """Return instance IDs, of both shards."""
    found = [b"app-%d" % n for n in range(number)]
    assert {shard_of(key, SHARDS) for key in found} == {0, 1}
    return found


def test_the_partial_sums_of_all_shards_are_added_up() -> None:
    """Later, only one shard has a record: its new partial sum replaces its old one."""
    job = Job()
    keys = instances(8)
    assert counts(job.batch(*((key, short("n", 10)) for key in keys))) == {"n": 80}
    assert counts(job.batch((keys[0], short("n", 15)))) == {"n": 85}
    assert counts(job.batch((keys[0], short("n", 15)), (keys[1], None))) == {"n": 75}


def test_a_requested_sum_is_published_again(tmp_path: Path) -> None:
    """Nothing has changed, and one metric is in only one shard. An unknown metric is ignored."""
    path = tmp_path / "c.repair"
    job = Job(repair=path)
    keys = instances(8)
    job.batch(*((key, short("n", 10)) for key in keys), (keys[0], short("alone", 7)))
    wake = [(key.encode(), None) for key in instances_of_shards(SHARDS).values()]
    assert counts(job.batch(*wake)) == {}
    requested_sums = [b'["default","counter","%s",[]]' % name for name in (b"n", b"alone", b"unknown")]
    write_request(path, Request(3, 1, {}, requested_sums))
    assert counts(job.batch(*wake)) == {"n": 80, "alone": 7}


def test_other_rows_pass_the_second_stage() -> None:
    """These are dead letters and the rows of lives. The record of a shard comes after its other rows."""
    job = Job()
    keys = instances(8)
    out = job.batch(*((key, short("n", 10)) for key in keys), (b"broken", b"{"))
    assert sum(topic == TOPICS.dead for topic, _, _ in out) == 1
    rows = [key for topic, key, _ in out if topic == TOPICS.table]
    assert sum(key.startswith(b'["life",') for key in rows) == 8
    assert {key for key in rows if key.startswith(b'["shard",')} == {b'["shard",0]', b'["shard",1]'}
    for shard in range(SHARDS):
        own = [n for n, (_, key, _) in enumerate(out) if key == b'["shard",%d]' % shard]
        mine = [n for n, (_, k, _) in enumerate(out) if k.startswith(b'["life",') and _instance_in(k, shard)]
        assert max(mine) < min(own)


def test_only_a_deletion_has_its_writer_in_a_header() -> None:
    """The second stage passes it on."""
    job = Job()
    key = instances(8)[0]
    job.batch((key, short("n", 10)))
    assert job.deleted == []
    job.batch((key, None))
    ((topic, found, value, partition, writer),) = job.deleted
    assert (topic, found, value) == (TOPICS.table, b'["life","default","%s","",0]' % key, None)
    assert (partition, writer) == (shard_of(key, SHARDS), b"[3,17]")


def test_a_rebuilt_table_publishes_every_sum_in_its_first_batch(tmp_path: Path) -> None:
    """The batch has one record of one shard. The sums of other metrics are exact, too."""
    states = [State(shard=shard, shards=SHARDS) for shard in range(SHARDS)]
    for number, key in enumerate(instances(8)):
        table = Table(states[shard_of(key, SHARDS)])
        table.apply([Record("t-metrics", 0, number, AT_MS, key, short(f"m{number % 3}", 7))])
        table.changes()
    for state in states:
        state.published = False
    initial_state = tmp_path / "checkpoint.initial_state"
    combined = [list(pack_combined(group)) for group in combine_shards(states)]
    write_initial_state(
        initial_state, InitialState([pack(state) for state in states], {"t-metrics": {"0": 8}}, 1, combined)
    )
    job = Job(initial_state, epoch=4)
    job.offset = 8
    assert counts(job.batch((b"app-0", short("m0", 9)))) == {"m0": 23, "m1": 21, "m2": 14}
    assert counts(job.batch((b"app-1", short("m1", 9)))) == {"m1": 23}


def _instance_in(key: bytes, shard: int) -> bool:
    return shard_of(key.split(b'"')[5], SHARDS) == shard
