"""`python -m tallystream_aggregator.spark.cds_archive`: make an archive of Spark's classes, which halves start-up time.

With class data sharing (JEP 350), a JVM writes the classes that it has loaded to an archive when it ends. Here it runs
the query of the loop without Kafka. Later JVMs map the archive into memory instead of reading and verifying 20,000
classes from 250 jars. The archive is only valid for one version of Java and for exactly these jars; any other JVM
ignores it. It takes about 200 MB in the Python environment, and a minute or more to make.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import java
from tallystream_aggregator.spark.epochs.processor import EpochProcessor
from tallystream_aggregator.spark.epochs.query import SETTINGS, start_query
from tallystream_aggregator.spark.session import (
    JVM_OPTIONS,
    NO_ARCHIVE_LOG,
    archive_path,
    build_session,
)
from tallystream_aggregator.stream.epochs import EpochRow

if TYPE_CHECKING:
    from tallystream_aggregator.table.storage import Store

WRITING_S = 300.0
"""How long the JVM may take to end, in seconds: on a busy machine it takes a minute to write the archive."""

_CONF = {
    **SETTINGS,
    # Maintenance runs once a minute by default. Here it runs at once, so that its classes are in the archive, too.
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
}
_EPOCHS = 6


def store_entry(shard: int, store: Store) -> EpochRow:
    """Store an entry. It reads and publishes nothing."""
    store.clear()
    store.add(1, b"entry")
    store.entry(1)
    store.set_head(store.head() or b"head")
    return EpochRow(shard)


def load_classes(written: Path) -> None:
    """Write the archive to `written`, and the checkpoint of the query to its folder.

    Raises:
        TallystreamError: the query failed.
    """
    # The JVM writes the archive when it ends.
    options = shlex.join((*JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={written}", *NO_ARCHIVE_LOG))
    session = build_session("tallystream archive", conf={**_CONF, "spark.driver.extraJavaOptions": options})
    try:
        query = start_query(session, EpochProcessor(store_entry), 1, written.parent / "checkpoint")
        try:
            while len(query.recentProgress) < _EPOCHS:
                if not query.isActive:
                    raise TallystreamError(f"the query that Spark's classes are taken from ended: {query.exception()}")
                time.sleep(0.1)
        finally:
            query.stop()
        # The end may interrupt the maintenance of the state, which would be a warning with a stack trace.
        session.sparkContext.setLogLevel("OFF")
    finally:
        gateway: Any = session.sparkContext._gateway  # noqa: SLF001
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when its standard input does
        gateway.proc.wait(WRITING_S)


def make() -> Path:
    """Make the archive for this Java and the installed PySpark, and return its path.

    Raises:
        ConfigError: Java is missing or of a version on which Spark does not run, or this Python's environment is not
            writable.
        TallystreamError: the archive was not written.
    """
    java.version()
    path = archive_path()
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as name:
            written = Path(name) / "classes.jsa"
            load_classes(written)
            if not written.exists():
                raise TallystreamError("no archive of Spark's classes was made; everything works without it.")
            for old in folder.glob("*.jsa"):  # of another PySpark
                old.unlink()
            return written.replace(path)
    except OSError as error:
        raise ConfigError("environment", str(folder), "let this user write there; or do without") from error


if __name__ == "__main__":
    try:
        sys.stderr.write(f"archive: {make()}\n")
    except TallystreamError as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(2)
