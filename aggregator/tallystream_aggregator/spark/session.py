"""Start and end the Spark session of a job: with Kafka's connector, state in RocksDB, and this Python for workers."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tallystream.errors import TallystreamError
from tallystream_aggregator import jars
from tallystream_aggregator.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_STARTUP = Path(__file__).with_name("startup")

_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_LOCAL_FILES = {
    # Hadoop's own local file system starts a chmod process for every file, and a batch creates dozens.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_HABITS = {
    # Batches run only if there are records, whatever an operator requests.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The next batch uses the same Python workers: starting one takes longer than a small batch.
    "spark.python.worker.reuse": "true",
    jvm.ENABLED: "true",
    "spark.sql.streaming.metricsEnabled": "false",
    # Limits the bytes of rows that are sent to Python at a time. By default only their number is limited, to 10,000.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
}


def build_session(
    name: str,
    *,
    master: str = "local[2]",
    driver_memory: str = "1g",
    conf: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
) -> SparkSession:
    """Start Spark, or connect to the JVM that spark-submit started, and return the session.

    Under spark-submit, the master and the jars are those of its command line. `conf` overrides all other settings.
    `java_options` replace the default options of the JVM.

    Raises:
        ConfigError: Java is missing or of a version on which Spark does not run.
        JarsError: the connector's jars can't be fetched.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    settings = {**_STATE, **_HABITS}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # set by spark-submit, whose settings are kept
        java = jars.java_version()
        settings |= {"spark.master": master, "spark.driver.memory": driver_memory}
        local = master.startswith("local")
        if local:
            # Not spark.jars: those are copied and served to executors, and an archive can't include their classes.
            settings |= {**_LOCAL_FILES, **jvm.settings(), "spark.driver.extraClassPath": jvm.class_path()}
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        else:
            settings["spark.jars"] = ",".join(str(path) for path in jars.fetch("spark"))
        options = java_options or (jvm.options(java) if local else jvm.OPTIONS)
        settings["spark.driver.extraJavaOptions"] = shlex.join(options)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with _python_path(_STARTUP):
        session: SparkSession = builder.getOrCreate()
    return session


def why_ended(code: int) -> str:
    """Return why Spark's JVM ended by itself, by its exit code (negative: the number of a signal)."""
    if code == jvm.OUT_OF_MEMORY:
        return "Spark's JVM ran out of memory; give it more by --driver-memory."
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"Spark's JVM {ended}; start the command again: it continues where it stopped."


@contextmanager
def _python_path(folder: Path) -> Iterator[None]:
    """Add a folder to PYTHONPATH inside the block: a JVM that starts there passes it to its Python processes."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def end_session(session: SparkSession, *, timeout: float = 30.0) -> None:
    """Stop Spark and wait until its JVM has ended. After `timeout` seconds, kill the JVM.

    Without the wait, the JVM ends some tenths of a second after this process. A supervisor would report it as a leak.

    Raises:
        TallystreamError: the JVM had ended before; the message has the reason.
    """
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 (PySpark has no public way to end its JVM)
    process = getattr(gateway, "proc", None)
    try:
        session.stop()
    except (OSError, Py4JError) as error:
        if process is None:
            raise
        raise TallystreamError(why_ended(process.wait(timeout))) from error
    if process is None:  # spark-submit owns the JVM
        return
    gateway.shutdown()
    process.stdin.close()  # the JVM ends when its standard input does
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
