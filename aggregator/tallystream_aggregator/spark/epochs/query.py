"""The query of the loops: a row for each in a batch, a stateful task for each, and a sink that stores nothing."""

from __future__ import annotations

import json
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql import functions as f

from tallystream.errors import ConfigError
from tallystream_aggregator.spark.epochs.partitions import keys_of
from tallystream_aggregator.spark.epochs.processor import EPOCH_ROW, EpochProcessor, EpochRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tallystream_aggregator.spark.epochs.processor import EpochSettings
    from tallystream_aggregator.stream.broker import Broker
    from tallystream_aggregator.stream.positions import ByTopic

log = logging.getLogger(__name__)

_LOCAL = re.compile(r"local\[(\d+)((?:,\d+)?)\]")

OBSERVED = "epochs"
"""The name of the observed metrics with the rows of a batch: `{"epochs": {"shards": [EPOCH_ROW, …]}}`."""

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
SPECULATION = "spark.speculation"
PARTITIONS = "spark.sql.shuffle.partitions"

REQUIRED = {
    # An epoch that runs again has other content. Only this version names the attempt whose state counts.
    FORMAT: "2",
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A second attempt beside the first one would fence it.
    SPECULATION: "false",
}


def settings_of(loops: int) -> dict[str, str]:
    """Return what the session of a query with so many loops needs: a partition and a task for each."""
    return {**REQUIRED, PARTITIONS: str(loops)}


def with_slots(master: str, loops: int) -> str:
    """Return a local master with a slot for each loop at least; any other is returned as it is.

    A slot is no core: the loops wait for records most of the time.
    """
    match = _LOCAL.fullmatch(master)
    return master if match is None else f"local[{max(int(match[1]), loops)}{match[2]}]"


def require_settings(session: SparkSession, loops: int) -> None:
    """Require the settings without which sums could be lost, and a slot for each loop. spark-submit has its own ones.

    Raises:
        ConfigError: one of them is different, or there are too few slots.
    """
    slots = session.sparkContext.defaultParallelism
    if slots < loops:
        raise ConfigError(
            "--master",
            session.sparkContext.master,
            f"it runs {slots} tasks at a time, and each of the {loops} loops needs one: give more cores",
        )
    for name, value in REQUIRED.items():
        found = session.conf.get(name, "false" if name == SPECULATION else None)
        if found != value:
            raise ConfigError(f"Spark's setting {name}", found, f"set it to {value}: the loop's state depends on it")


def warm(session: SparkSession, loops: int) -> None:
    """Start a Python worker for each loop in a thread, with the imports of a task. If it fails, the first epoch does.

    Don't wait for it.
    """

    def run() -> None:
        try:
            workers = min(loops, session.sparkContext.defaultParallelism)
            session.sparkContext.parallelize(range(workers), workers).mapPartitions(import_modules).count()
        except (Py4JError, OSError) as error:  # the session has ended by an early stop
            log.debug("the Python workers were not started ahead: %s", error)

    threading.Thread(target=run, name="tallystream-warm", daemon=True).start()


def import_modules(numbers: Iterable[int]) -> Iterable[int]:
    """Import what a task of the query needs, beside this module, and return `numbers`."""
    import pandas  # noqa: F401, ICN001
    import pyspark.sql.streaming.stateful_processor_api_client  # noqa: F401

    import tallystream_aggregator.stream.kafka  # noqa: F401

    return numbers


def start_query(
    session: SparkSession,
    settings: EpochSettings,
    broker: Callable[[Callable[[], bool]], Broker],
    checkpoint: Path,
) -> StreamingQuery:
    """Start the query of a table on its checkpoint. `broker` is that of `EpochProcessor`.

    Raises:
        Py4JError, PySparkException: Spark can't start it, most likely because a file of the checkpoint is damaged.
    """
    loops, keys = settings.loops, keys_of(settings.loops)
    tick = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", str(loops))
        .option("numPartitions", "1")
        .load()
    )
    rows = (
        tick.select(f.element_at(f.array(*map(f.lit, keys)), f.expr(f"int(value % {loops}) + 1")).alias("loop"))
        .groupBy("loop")
        .transformWithStateInPandas(
            statefulProcessor=EpochProcessor(settings, broker),
            outputStructType=EPOCH_ROW,
            outputMode="Update",
            timeMode="None",
        )
    )
    # Observed rows come with the progress of the batch. A sink that stores them would only repeat it.
    observed = rows.observe(OBSERVED, f.collect_list(f.struct(*EPOCH_ROW.names)).alias("shards"))
    writer = (
        observed.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .queryName("aggregate")
    )
    return writer.start()


def rows_of(progress: Mapping[str, Any]) -> list[EpochRow]:
    """Return the rows of a finished batch from Spark's progress of it."""
    found = (progress.get("observedMetrics") or {}).get(OBSERVED, {}).get("shards") or ()
    return [_row(fields) for fields in found]


def _row(fields: Mapping[str, Any]) -> EpochRow:
    positions: ByTopic = json.loads(fields["positions"])
    return msgspec.convert({**fields, "positions": positions}, EpochRow)
