"""The JVM that Spark runs in: its options, its classes, and the sockets between it and Python.

Over TCP, Spark's default, the JVM writes twice before it reads, and the second half of each task's input waits for 40
ms: Nagle's algorithm on one side, the delayed acknowledgement on the other (docs/performance.md). So Spark and Python
use sockets in a folder that only this user may enter.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import tempfile
from pathlib import Path

import pyspark

from tallystream_aggregator import jars

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"

MOST_BYTES = 60
"""How long the folder's path may be: Spark's names have 42 bytes, and a socket's path 103 at most on some systems."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tallystream-")  # it is gone when this process ends


def settings() -> dict[str, str]:
    """Return what Spark is told, where all of its processes are on this machine."""
    folder = _folder().name
    return {ENABLED: "true", FOLDER: folder} if len(folder.encode()) <= MOST_BYTES else {ENABLED: "false"}


LOGGING = Path(__file__).with_name("log4j2.properties")
OPTIONS = (
    f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    # Without the slow compiler: each batch has a plan, and code, of its own, and little else runs for long.
    "-XX:TieredStopAtLevel=1",
    # Without that one, Java gives compiled code 48 MB in the place of 240, and throws away, and makes again, what a
    # batch needs: twice as much is compiled, and now and then a batch takes a second.
    "-XX:ReservedCodeCacheSize=240m",
    # A batch's objects die with it. G1 marks the heap beside every few batches, for a tenth of their processor time.
    "-XX:+UseParallelGC",
    # Else a thread that runs out of memory ends alone, and the query waits for it without end.
    "-XX:+ExitOnOutOfMemoryError",
)
OUT_OF_MEMORY = 3
"""The exit code of a JVM that runs out of memory with `-XX:+ExitOnOutOfMemoryError`."""
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""An archive that does not fit, of another Java or of older jars, is left alone by the JVM: it need not say so."""


def class_path() -> str:
    """Return what a JVM that is driver and executor at once needs beside Spark's own jars.

    Raises:
        JarsError: a jar can't be had.
    """
    return ":".join(str(path) for of in ("files", "spark") for path in jars.fetch(of))


def archive_folder() -> Path:
    """Return where archives of Spark's classes are: in this Python's environment, whose jars they are for."""
    return Path(sys.prefix) / "share" / "tallystream"


def archive_name(java: str, size: int) -> str:
    """Return the name of the archive of Spark's classes for a version of Java and for the jars as they are now.

    `size` is the file's, in bytes: a JVM that maps one that was cut short is killed, so it has to be known.
    """
    return f"spark-classes-java-{java}-{_jars_digest()}-{size}.jsa"


def archive_of(java: str) -> Path | None:
    """Return the archive for a version of Java and these jars, if there is one that is whole and may be read."""
    for path in archive_folder().glob("*.jsa"):
        if path.name == archive_name(java, path.stat().st_size) and os.access(path, os.R_OK):
            return path
    return None


def _jars_digest() -> str:
    # What the JVM goes by, too, to tell whether an archive is for its class path.
    spark = Path(pyspark.__file__).with_name("jars")
    found = [*sorted(spark.glob("*.jar")), *map(Path, class_path().split(":"))]
    told = "".join(f"{jar} {jar.stat().st_size} {int(jar.stat().st_mtime)}\n" for jar in found)
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def options(java: str) -> list[str]:
    """Return the options of the JVM, which uses the archive (spark.cds_archive) if there is one."""
    archive = archive_of(java)
    return [*OPTIONS, f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive else [*OPTIONS]


def archiving(to: Path) -> list[str]:
    """Return the options of a JVM that writes the classes that it has loaded to an archive when it ends."""
    return [*OPTIONS, f"-XX:ArchiveClassesAtExit={to}", *_QUIET]
