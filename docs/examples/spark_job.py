r"""A PySpark Structured Streaming job with metrics of the driver's batches and of the executors' Python code.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
        docs/examples/spark_job.py localhost:9092 flights /var/lib/flights/checkpoint

Reads the topic `flights`, scores each record in Python, writes the scores to `flights-scored`, and ends when it has
read all records. Both topics must exist, or the broker must create them on first use. Executors need
tallystream; the job sends its own module to them.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from tallystream import KafkaReporter, MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    from pyspark.sql.streaming.listener import QueryProgressEvent

METRICS = os.environ.get("TALLYSTREAM_TOPIC_PREFIX", "") + "metrics"


@cache
def reporting(servers: str, topic: str, instance: str) -> KafkaReporter:
    """Return the reporter of this process. All tasks of a worker process use it, one after the other."""
    registry = MetricRegistry("scoring")
    return KafkaReporter(registry, bootstrap_servers=servers, topic=topic, instance=instance).start()


def score(batches: Iterable[pd.DataFrame], *, servers: str, metrics: str) -> Iterator[pd.DataFrame]:
    """Do the application's work on the records of one task, in a worker process of an executor."""
    reporter = reporting(servers, metrics, f"executor-{os.uname().nodename}")
    rows = 0
    for batch in batches:
        with reporter.registry.timer("scoring.batch").time():
            scores = batch["value"].str.len().astype(str)
        rows += len(batch)
        yield scores.to_frame("value")
    # Count after all rows are scored: an attempt that fails before this line counts nothing. An attempt is counted
    # even if Spark can't write its results. Wait for the report: Spark may end this process at any time after the task.
    reporter.registry.counter("scoring.rows").inc(rows)
    reporter.report_now(timeout=10)


class Batches(StreamingQueryListener):
    """Counts the rows of each finished batch. Spark calls it in the driver, in a separate thread."""

    def __init__(self, registry: MetricRegistry) -> None:
        self.rows = registry.counter("driver.rows")
        self.batches = registry.histogram("driver.batch.seconds")
        self.ended = threading.Event()

    def onQueryStarted(self, event: object) -> None:  # noqa: N802 (Spark defines the names)
        """Count nothing: no batch has finished."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Count the rows of a batch."""
        self.rows.inc(event.progress.numInputRows)
        self.batches.update(event.progress.batchDuration / 1000)

    def onQueryIdle(self, event: object) -> None:  # noqa: N802
        """Count nothing: no record was read."""

    def onQueryTerminated(self, event: object) -> None:  # noqa: ARG002, N802
        """Let main() end, because every batch has been counted."""
        self.ended.set()


def main(servers: str, topic: str, checkpoint: str) -> None:
    """Run the query to the current end of the topic."""
    spark = SparkSession.builder.appName("scoring").getOrCreate()
    spark.sparkContext.addPyFile(__file__)
    reporter = reporting(servers, METRICS, "driver")
    listener = Batches(reporter.registry)
    spark.streams.addListener(listener)
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    records = kafka.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = (
        records.selectExpr("CAST(value AS STRING) AS value")
        .mapInPandas(partial(score, servers=servers, metrics=METRICS), "value STRING")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic + "-scored")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    listener.ended.wait(30)
    reporter.stop()
    spark.stop()


if __name__ == "__main__":
    # Import it by name, so that the driver and all workers use the same module with the same caches.
    sys.path.insert(0, str(Path(__file__).parent))
    import spark_job

    spark_job.main(*sys.argv[1:])
