"""What release 0.1 wrote, made once and kept: python -m support.release. Later releases read it (`test_release.py`).

It is never made again: users have it on their brokers and disks.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from support.fuzzing.seeds import lines
from support.fuzzing.stores import NOW_MS, empty_path, history
from support.replayed import TopicRecord
from support.schedules import play
from support.scripted_producer import KafkaBench
from support.steps import apply, records_of
from support.tables import Tables, table_settings
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.spark.epochs.processor import EpochProcessor
from tallystream_aggregator.spark.epochs.query import SETTINGS, start_query
from tallystream_aggregator.spark.session import build_session, end_session
from tallystream_aggregator.stream import positions
from tallystream_aggregator.stream.epochs import EpochRow
from tallystream_aggregator.sums import key_of
from tallystream_aggregator.table import pack, storage
from tallystream_aggregator.table.storage import Store

FOLDER = Path(__file__).parents[1] / "releases" / "0.1"

RULES: dict[str, Any] = {"short_form_every_ms": 5_000, "forget_after_ms": 50_000}
"""The settings of its aggregator, which was stopped in the middle of the topic."""


def reported() -> list[bytes]:
    """Return the records of an application with all metrics that it can have: two reports, and the end of its life."""
    bench = KafkaBench()
    registry, tags = bench.registry, {"topic": "orders"}
    for value in (1, 5):
        registry.counter("records.processed", tags).inc(value)
        registry.updown("jobs.open").inc(-value)
        registry.gauge("queue.size").set(value / 4)
        registry.meter("requests").mark(value)
        registry.histogram("order.size").update(10 * value)
        registry.timer("request.time", {"route": "größe"}).update(value / 8)
        registry.position("orders", 0).advance(100, 100 + value)
        bench.clock.advance(1)
        bench.reporter.report_now()
    bench.reporter.stop()
    return [value for producer in bench.producers for value in producer.values]


def topic() -> list[TopicRecord]:
    """Return the records on its topic. Its aggregator had read the first half."""
    return [msgspec.json.decode(line, type=TopicRecord) for line in (FOLDER / "topic").read_bytes().split(b"\n")]


EPOCHS = 4
"""How many epochs run on a checkpoint. They read the second half of the topic."""


def run_epochs(session: SparkSession, checkpoint: Path, run: Callable[[int, Store], EpochRow]) -> None:
    """Run a query on a checkpoint for some epochs, whose state `run` reads and writes."""
    query = start_query(session, EpochProcessor(run), 1, checkpoint)
    while len(query.recentProgress) < EPOCHS:
        query.awaitTermination(1)  # raises what ends the query
    query.stop()


def keep_state(number: int, store: Store) -> EpochRow:
    """Store the table of its aggregator."""
    if store.head() is None:
        head, *entries = msgspec.msgpack.decode((FOLDER / "state").read_bytes(), type=list[bytes])
        for at, entry in enumerate(entries, 1):
            store.add(at, entry)
        store.set_head(head)
    return EpochRow(number)


def go_on(result: Path, number: int, store: Store) -> EpochRow:
    """Apply the next records to the stored table, and write its sums to a file."""
    stored = storage.load(store, table_settings(**RULES))
    assert stored is not None
    ((_, at),) = positions.positions_of(stored.table.state).items()
    records = topic()
    apply(stored.table, records_of(records[at : at + len(records) // 2 // (EPOCHS - 1) + 1]))
    stored.table.outputs()
    stored.save(store)
    result.write_bytes(pack(stored.table.state))
    return EpochRow(number)


WHERE = "{checkpoint}"
"""Stands for the path of the checkpoint, which Spark's metadata has: a checkpoint that is moved can't be read."""


def put_checkpoint(folder: Path) -> None:
    """Put its checkpoint into a folder, as if it had been written there."""
    shutil.unpack_archive(FOLDER / "checkpoint.zip", folder)
    replace_path(folder, WHERE, str(folder))


def replace_path(checkpoint: Path, old: str, new: str) -> None:
    """Replace a path in the metadata of a checkpoint, which then has no checksum."""
    path = checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    path.with_name(".0.crc").unlink(missing_ok=True)


def keep_checkpoint() -> None:
    """Write a checkpoint with the state."""
    session = build_session("release", master="local[1]", conf=SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        run_epochs(session, Path(folder), keep_state)
        end_session(session)
        replace_path(Path(folder), folder, WHERE)
        shutil.make_archive(str(FOLDER / "checkpoint"), "zip", folder)


def main() -> None:
    """Write everything."""
    if FOLDER.exists():
        sys.exit(f"{FOLDER} exists: what a release wrote is never made again")
    FOLDER.mkdir(parents=True)
    (FOLDER / "reported").write_bytes(b"\n".join(reported()))
    records = [one._replace(partition=0, offset=at) for at, one in enumerate(play([seed * 34 for seed in range(60)]))]
    (FOLDER / "topic").write_bytes(b"\n".join(msgspec.json.encode(one) for one in records))
    half = len(records) // 2
    tables = Tables(records, table_settings(**RULES))
    tables.step({0: half // 2})
    tables.step({0: half})
    (store,), (table,) = tables.stores, tables.tables
    (FOLDER / "state").write_bytes(msgspec.msgpack.encode([store.head(), *store.entries.values()]))
    (FOLDER / "rows").write_bytes(lines((key, value) for (_, key), value in tables._rows[0].rows.items()))
    row = positions.row_of(
        table.state,
        claim=(1, 1),
        step=2,
        topics={"metrics": "id"},
        begin={},
        last_records={},
        settings=table.settings,
        replay_since=1,
    )
    (FOLDER / "positions").write_bytes(positions.encode(row))
    newest = {key_of(metric): value for metric, value in tables.published}
    (FOLDER / "sums").write_bytes(lines(newest.items()))
    path = empty_path()
    with closing(LocalStore(path, clock=lambda: NOW_MS)) as local:
        local.write(history())
        local._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (FOLDER / "store.db").write_bytes(path.read_bytes())
    keep_checkpoint()


if __name__ == "__main__":
    main()
