"""The table of state version 5, which stored its whole state as one value: `python -m support.version5` makes one.

    python -m support.version5 BOOTSTRAP_SERVERS TOPIC_PREFIX CHECKPOINT

sums what is on `metrics` and ends: a checkpoint as an aggregator of that version left it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from support.wait import wait_until
from tallystream.aggregator.spark.kafka import source_options
from tallystream.aggregator.spark.packing import INPUT_COLUMNS
from tallystream.aggregator.spark.processor import OUTPUT
from tallystream.aggregator.spark.session import build_session, end_session
from tallystream.aggregator.table import Record, State, Table, unpack
from tallystream.aggregator.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator


class Version5(StatefulProcessor):
    """One packed value for the shard, and a timer."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def init(self, handle: Any) -> None:
        """Open the value."""
        self._handle = handle
        self._state = handle.getValueState("table", "packed binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        """Apply the records, publish the sums."""
        stored = self._state.get()
        table = Table(State() if stored is None else unpack(bytes(stored[0])))
        records = [Record(*row) for chunk in rows for row in zip(*(chunk[name] for name in INPUT_COLUMNS), strict=True)]
        table.apply(sorted(records, key=lambda record: record.offset))
        out = [(self._topics.agg, sum_.key(), sum_.value(epoch=1, batch=0)) for sum_ in table.changes().totals]
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(table.state))
        self._state.update((msgspec.msgpack.encode([5, *fields[1:]]),))
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
        yield pd.DataFrame(out, columns=["topic", "key", "value"], dtype=object)

    def close(self) -> None:
        """Nothing is held."""


def main(servers: str, prefix: str, checkpoint: str) -> None:
    """Run the query until everything that is there is summed."""
    topics = Topics(prefix)
    session = build_session("version 5", conf={"spark.sql.shuffle.partitions": "1"})
    options = source_options(servers)
    source = session.readStream.format("kafka").options(**options).option("subscribe", topics.metrics)
    records = (
        source.option("startingOffsets", "earliest")
        .load()
        .selectExpr(
            "0 AS shard", "topic", "partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "key", "value"
        )
    )
    out = records.groupBy("shard").transformWithStateInPandas(
        statefulProcessor=Version5(topics), outputStructType=OUTPUT, outputMode="Update", timeMode="ProcessingTime"
    )
    query = (
        out.writeStream.format("kafka").options(**options).outputMode("update").option("checkpointLocation", checkpoint)
    ).start()
    wait_until(lambda: _has_run(query), 240, "the batch is done")
    query.stop()
    end_session(session)


def _has_run(query: Any) -> bool:
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    return query.lastProgress is not None and query.lastProgress["numInputRows"] > 0


if __name__ == "__main__":
    main(*sys.argv[1:])
