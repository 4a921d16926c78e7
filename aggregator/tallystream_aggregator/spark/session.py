"""Start and end the Spark session of a job, with this Python for workers."""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tallystream.errors import ConfigError, TallystreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

_STARTUP = Path(__file__).with_name("startup")
_LOGGING = Path(__file__).with_name("log4j2.properties")

JVM_OPTIONS = (
    f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    # Without the optimizing compiler: each batch has its own plan and generated code, so little code runs for long.
    "-XX:TieredStopAtLevel=1",
    # Without the optimizing compiler, Java reserves 48 MB for compiled code instead of 240. It then discards code that
    # batches need and compiles it again: twice as much is compiled, and some batches take a second.
    "-XX:ReservedCodeCacheSize=240m",
    # A batch a minute leaves little to collect. Parallel collectors and a heap that starts large take 170 MB more.
    "-XX:+UseSerialGC",
    "-Xms64m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
    # Otherwise only the thread that runs out of memory ends, and the query waits for it forever.
    "-XX:+ExitOnOutOfMemoryError",
)
NO_ARCHIVE_LOG = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Options against log lines about an archive of another Java or of other jars, which the JVM ignores."""

TIMEOUT_S = 30.0
"""How long the end of the JVM may take, in seconds."""

UNLOCKED_S = 60.0
"""A folder of temporary files that is younger may not be locked yet."""

OUT_OF_MEMORY = 3
"""The exit code of a JVM that runs out of memory with `-XX:+ExitOnOutOfMemoryError`."""


def start_jvm(master: str | None, driver_memory: str) -> None:
    """Start the JVM of the session that `build_session` makes later, which need not wait for it then.

    Without a master, it is a local one. Under spark-submit, which has started a JVM, it does nothing.

    Raises:
        PySparkException: it does not start. `build_session` tries again, and says why.
    """
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(_settings(master or "local", driver_memory).items()))
    SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 (PySpark has no public way to start only its JVM)


def build_session(
    name: str,
    *,
    master: str = "local[2]",
    driver_memory: str = "1g",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark in the JVM of `start_jvm`, in a new one, or in that of spark-submit, and return the session.

    Under spark-submit, the master is that of its command line. `conf` overrides all other settings. In the main thread,
    PySpark replaces the handler of SIGINT by one that raises KeyboardInterrupt.

    Raises:
        TallystreamError: Spark does not start.
    """
    builder = SparkSession.builder.appName(name)
    for key, value in (_settings(master, driver_memory) | dict(conf or {})).items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        reason = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
        raise TallystreamError(f"Spark did not start: {reason}; what it logged above may say more.") from error
    return session


def _settings(master: str, driver_memory: str) -> dict[str, str]:
    """Return the settings of Spark, and set the variables of its processes."""
    # By default, glibc gives most threads a heap of their own, which keeps what they free.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(_STARTUP) not in paths:  # the JVM passes it to its Python processes
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_STARTUP), *filter(None, paths)])
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings = {"spark.ui.showConsoleProgress": "false"}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # set by spark-submit, whose settings are kept
        settings |= {"spark.master": master, "spark.driver.memory": driver_memory, "spark.ui.enabled": "false"}
        options = list(JVM_OPTIONS)
        if master.startswith("local"):
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            os.environ["SPARK_LOCAL_DIRS"] = _local_folder().name
            options = local_jvm_options()
        settings["spark.driver.extraJavaOptions"] = shlex.join(options)
    return settings


def archive_path() -> Path:
    """Return the path of the archive of Spark's classes: in this Python's environment, which has the jars."""
    return Path(sys.prefix, "share", "tallystream", f"spark-{pyspark.__version__}.jsa")


def local_jvm_options() -> list[str]:
    """Return the options of a JVM on this machine, with the archive of Spark's classes if there is one.

    A JVM ignores the archive of another Java or of other jars.
    """
    options = [*JVM_OPTIONS, f"-Djava.io.tmpdir={_local_folder().name}"]
    if os.access(archive_path(), os.R_OK):
        options += [f"-XX:SharedArchiveFile={archive_path()}", *NO_ARCHIVE_LOG]
    return options


@functools.cache
def _local_folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of a local Spark's temporary files, which is deleted when this process ends.

    Folders of processes that were killed are deleted, too.

    Raises:
        ConfigError: it can't be created.
    """
    parent = Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())
    prefix = "tallystream-spark-"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        # A JVM that refused to start a session may still run, and write there.
        folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        remedy = f"name a folder that this user can write ({error.strerror})"
        raise ConfigError("SPARK_LOCAL_DIRS", str(parent), remedy) from error
    with suppress(OSError):  # on a file system without locks, the folder of a killed process stays
        _lock(Path(folder.name))
    for path in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # it is locked, or another user's
            if time.time() - path.stat().st_mtime > UNLOCKED_S:
                lock = _lock(path)
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
    return folder


def _lock(folder: Path) -> int:
    """Lock a folder until the returned descriptor is closed, or this process ends.

    Raises:
        OSError: another process has the lock, or the folder can't be locked.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def why_ended(code: int | None) -> str:
    """Return why Spark's JVM ended by itself, by its exit code (negative: the number of a signal)."""
    if code == OUT_OF_MEMORY:
        return "Spark's JVM ran out of memory; give it more by --driver-memory."
    ended = "ended" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"Spark's JVM {ended}; start the command again: it continues where it stopped."


def end_session(session: SparkSession) -> None:
    """End Spark, and wait until its JVM has ended.

    A local JVM is killed: its query has ended, this process deletes its temporary files, and an orderly end takes more
    than a second. On a cluster, Spark releases the executors. The JVM of spark-submit waits for this process.

    Raises:
        TallystreamError: the JVM had ended before; the message has the reason.
    """
    context: Any = session.sparkContext
    gateway = context._gateway  # noqa: SLF001 (PySpark has no public way to end its JVM)
    process: subprocess.Popen[bytes] | None = gateway.proc
    is_local = process is not None and context.master.startswith("local")
    try:
        if is_local:
            gateway.jvm.java.lang.System.nanoTime()
        else:
            session.stop()
    except (OSError, Py4JError) as error:
        raise TallystreamError(why_ended(None if process is None else _wait(process))) from error
    if process is None:
        return
    if is_local:
        # Threads that have a connection to the JVM would log that it breaks.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(lambda record: record.module != "java_gateway")  # its errors, in the root logger
        context._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001
    gateway.shutdown()
    if is_local:
        process.kill()
    assert process.stdin is not None
    process.stdin.close()  # a JVM ends when its standard input does
    _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
