"""The query of the loops: a row for each in a batch, a stateful task for each, and a sink that stores nothing.

Each loop has a stateful operator of its own, with one partition, and the query is their union: so their tasks run side
by side. Each has an environment variable with another value. Spark keeps the Python workers of different environments
apart, so a loop finds its table in the process that ran it before. Workers of one operator would swap shards in most
epochs, and load the table again.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError
from tallystream_aggregator.stream.epochs import EpochRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tallystream_aggregator.spark.epochs.processor import EpochProcessor

log = logging.getLogger(__name__)

EPOCH_ROW = StructType([StructField("epoch", StringType())])
"""The row that a loop returns for each epoch: an `EpochRow` as JSON."""

OBSERVED = "epochs"
"""The name of the observed metrics with the rows of a batch: `{"epochs": {"shards": [an EpochRow as JSON, …]}}`."""

SETTINGS = {
    # An epoch that runs again has other content. Only this version names the attempt whose state counts.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # RocksDB keeps up to two buffers of 64 MB by default. The state is written once an epoch, and read at a start.
    "spark.sql.streaming.stateStore.rocksdb.writeBufferSizeMB": "8",
    # A second attempt beside the first one would fence it.
    "spark.speculation": "false",
    # A worker that ends after its task would end the loop's thread within a transaction, which holds up readers.
    "spark.python.worker.reuse": "true",
    "spark.sql.shuffle.partitions": "1",
    # A batch has one row for each loop: code that is generated and compiled for it would only delay a start.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Spark keeps a hundred batches by default. An epoch's changes may be as large as the table, and only the last
    # state is ever used.
    "spark.sql.streaming.minBatchesToRetain": "3",
}
"""What the session needs: without some of them sums could be lost, so they replace those of spark-submit."""

SLOTS_S = 30.0
"""How long a start waits until enough executors of a cluster have registered."""

LOOP = "TALLYSTREAM_LOOP"
"""The environment variable with the number of the loop in its Python workers."""

_environment = threading.Lock()
_decode = json_decoder(EpochRow)


def require_slots(session: SparkSession, loops: int, stopped: Callable[[], bool] = lambda: False) -> None:
    """Require a slot for each loop. If `stopped` returns True, it returns at once.

    Raises:
        ConfigError: there are too few.
    """
    context = session.sparkContext
    until_s = time.monotonic() + (0.0 if str(context.master).startswith("local") else SLOTS_S)
    while (slots := context.defaultParallelism) < loops and time.monotonic() < until_s:
        if stopped():
            return
        time.sleep(0.1)
    if slots < loops:
        raise ConfigError(
            "--master",
            context.master,
            f"it runs {slots} tasks at a time, and each of the {loops} loops needs one: give more cores",
        )


@contextmanager
def environment_of(session: SparkSession, loop: int) -> Iterator[None]:
    """Give the functions that are sent to Spark inside the block the environment of a loop."""
    environment = session.sparkContext.environment
    with _environment:
        environment[LOOP] = str(loop)
        try:
            yield
        finally:
            del environment[LOOP]


def warm(session: SparkSession, loops: int) -> None:
    """Start a Python worker for each loop in threads, with the imports of a task. If it fails, the first epoch does.

    Don't wait for it.
    """

    def run(loop: int) -> None:
        try:
            with environment_of(session, loop):
                rdd = session.sparkContext.parallelize([loop], 1).mapPartitions(import_modules)
                java = rdd._jrdd  # noqa: SLF001 (this sends the function)
            java.count()
        except (Py4JError, OSError) as error:  # the session has ended by an early stop
            log.debug("the Python workers were not started ahead: %s", error)

    for loop in range(loops):
        threading.Thread(target=run, args=(loop,), name="tallystream-warm", daemon=True).start()


def import_modules(numbers: Iterable[int]) -> Iterable[int]:
    """Import what a task of the query needs, beside this module, and return `numbers`."""
    import pandas  # noqa: F401, ICN001
    import pyspark.sql.streaming.stateful_processor_api_client  # noqa: F401

    return numbers


def start_query(session: SparkSession, processor: EpochProcessor, loops: int, checkpoint: Path) -> StreamingQuery:
    """Start the query of a table on its checkpoint. `processor` runs each of its `loops`.

    Raises:
        Py4JError, PySparkException: Spark can't start it, most likely because a file of the checkpoint is damaged.
    """
    rows = reduce(DataFrame.unionAll, [_rows(session, processor, loop) for loop in range(loops)])
    # Observed rows come with the progress of the batch. A sink that stores them would only repeat it.
    observed = rows.observe(OBSERVED, f.collect_list("epoch").alias("shards"))
    writer = (
        observed.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .queryName("aggregate")
    )
    return writer.start()


def _rows(session: SparkSession, processor: EpochProcessor, loop: int) -> DataFrame:
    """Return the rows of a loop, one for each batch."""
    tick = session.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").option("numPartitions", "1").load()
    with environment_of(session, loop):
        return (
            tick.select(f.lit(loop).alias("loop"))
            .groupBy("loop")
            .transformWithStateInPandas(
                statefulProcessor=processor,
                outputStructType=EPOCH_ROW,
                outputMode="Update",
                timeMode="None",
            )
        )


def rows_of(progress: Mapping[str, Any]) -> list[EpochRow]:
    """Return the rows of a finished batch from Spark's progress of it."""
    observed = progress["observedMetrics"]
    return [_decode(text) for text in observed[OBSERVED]["shards"]] if OBSERVED in observed else []
