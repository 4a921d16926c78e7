"""What release 0.1 wrote, made once and kept, as users have it on their brokers and disks. Later releases read it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from support.replayed import TopicRecord
from support.scripted_producer import KafkaBench
from support.steps import apply, records_of
from support.tables import table_settings
from tallystream_aggregator.spark.epochs.processor import EpochProcessor
from tallystream_aggregator.spark.epochs.query import start_query
from tallystream_aggregator.stream import positions
from tallystream_aggregator.stream.epochs import EpochRow
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
    """Put its checkpoint into a folder, as if it had been written there. Its metadata has no checksum then."""
    shutil.unpack_archive(FOLDER / "checkpoint.zip", folder)
    path = folder / "state" / "0" / "_metadata" / "v2" / "0"
    path.write_text(path.read_text(encoding="utf-8").replace(WHERE, str(folder)), encoding="utf-8")
    path.with_name(".0.crc").unlink(missing_ok=True)
