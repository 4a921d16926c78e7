"""Write the archive of Spark's classes from a JVM that has loaded them: it runs the queries of both modes."""

from __future__ import annotations

import logging
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tallystream.errors import TallystreamError
from tallystream_aggregator import jars
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sharding import Sharding
from tallystream_aggregator.spark.catch_up.source import CatchUpSource, compacted
from tallystream_aggregator.spark.catch_up.splits import Range, cut
from tallystream_aggregator.spark.query.query import summed
from tallystream_aggregator.spark.query.settings import AggregateSettings
from tallystream_aggregator.spark.session import JVM_OPTIONS, NO_ARCHIVE_LOG, build_session, end_session
from tallystream_aggregator.table.limits import TableSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit

    from tallystream_aggregator.kafka.topic_selection import Offsets

log = logging.getLogger(__name__)

WRITING_S = 300.0
"""How long the JVM may take to end, in seconds: on a busy machine it takes a minute to write the archive."""
_CONF = {
    "spark.sql.shuffle.partitions": "1",
    # Maintenance runs once a minute by default. Here it runs at once, so that its classes are in the archive, too.
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
}
_BATCHES = 6
_PACKAGES = ("org/apache/kafka/clients/", "org/apache/kafka/common/", "org/apache/spark/sql/kafka010/")


def load_classes(written: Path) -> None:
    """Write the archive to `written`, and the checkpoints of the queries to its folder.

    Raises:
        JarsError: the connector's jars can't be fetched.
        TallystreamError: the query failed.
    """
    # The JVM writes the archive when it ends.
    options = (*JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={written}", *NO_ARCHIVE_LOG)
    session = build_session("tallystream archive", conf=_CONF, java_options=options)
    try:
        _load(session)
        _run(session, written.parent)
    finally:
        end_session(session, timeout=WRITING_S)


def _load(session: SparkSession) -> None:
    """Load the classes that a query without a broker does not use: Kafka's clients and Spark's connector."""
    loader: Any = session.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr] # noqa: SLF001
    for jar in jars.fetch("spark"):
        with zipfile.ZipFile(jar) as archive:
            names = [name[:-6] for name in archive.namelist() if name.startswith(_PACKAGES) and name.endswith(".class")]
        for name in names:
            try:
                loader.loadClass(name.replace("/", "."))
            except Py4JJavaError as error:  # the class needs a library that is missing
                log.debug("%s: %s", name, error.java_exception)


class ClassLoadingSource(CatchUpSource):
    """A catch-up source without a broker."""

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        """Return the reader."""
        return ClassLoadingReader()


class ClassLoadingReader(DataSourceStreamReader):
    """A reader with ten records for each batch, without end."""

    def initialOffset(self) -> Offsets:
        """Return offset 0."""
        return {"metrics": {"0": 0}}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the offset ten records after `start`."""
        return {"metrics": {"0": start["metrics"]["0"] + 10}}

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the records of a batch as one range."""
        return [InputPartition(one) for one in cut(start, end, 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of a range that compaction keeps."""
        of: Range = partition.value
        now = int(time.time() * 1000)
        rows = [(n, now, b"example", b"") for n in range(of.first, of.end)]
        return compacted([rows], of, TableSettings(), 1)


def _run(session: SparkSession, folder: Path) -> None:
    """Run a few batches of the queries of both modes, with a source and a sink that need no Kafka."""
    columns = (
        "'metrics' AS topic, 0 AS partition, value AS offset, unix_millis(timestamp) AS timestamp_ms, "
        "CAST('example' AS binary) AS key, CAST('' AS binary) AS value"
    )
    live = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    session.dataSource.register(ClassLoadingSource)
    catch_up = session.readStream.format(ClassLoadingSource.name()).load()
    for name, records in (("live", live.selectExpr(*columns.split(", "))), ("catch-up", catch_up)):
        settings = AggregateSettings(bootstrap_servers="localhost:9092", checkpoint=folder)
        out = summed(records, settings, Topics(""), epoch=1, sharding=Sharding())
        writer = out.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(folder / name))
        query = writer.start()
        try:
            while query.lastProgress is None or query.lastProgress["batchId"] < _BATCHES:
                if not query.isActive:
                    raise TallystreamError(f"the query that Spark's classes are taken from ended: {query.exception()}")
                time.sleep(0.1)
        finally:
            query.stop()


if __name__ == "__main__":
    load_classes(Path(sys.argv[1]))
