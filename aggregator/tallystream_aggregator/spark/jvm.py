"""The JVM that Spark runs in: its options, its classes, and the sockets between it and Python.

Over TCP, Spark's default, the JVM writes twice before it reads. The second half of each task's input is delayed by 40
ms, by Nagle's algorithm on one side and the delayed acknowledgement on the other (docs/performance.md). So Spark and
Python use Unix domain sockets, in a folder that only this user may enter.
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
"""The longest path of the folder: Spark's names have 42 bytes, and some systems limit a socket's path to 103."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tallystream-")  # deleted when this process ends


def settings() -> dict[str, str]:
    """Return Spark's settings for Unix domain sockets, or for TCP if the folder's path is too long.

    They require that all of Spark's processes are on this machine.
    """
    folder = _folder().name
    return {ENABLED: "true", FOLDER: folder} if len(folder.encode()) <= MOST_BYTES else {ENABLED: "false"}


LOGGING = Path(__file__).with_name("log4j2.properties")
OPTIONS = (
    f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    # Without the optimizing compiler: each batch has its own plan and generated code, so little code runs for long.
    "-XX:TieredStopAtLevel=1",
    # Without the optimizing compiler, Java reserves 48 MB for compiled code instead of 240. It then discards code that
    # batches need and compiles it again: twice as much is compiled, and some batches take a second.
    "-XX:ReservedCodeCacheSize=240m",
    # Most objects are garbage after their batch. G1 would mark the heap every few batches, which takes a tenth of their
    # processor time.
    "-XX:+UseParallelGC",
    # Otherwise only the thread that runs out of memory ends, and the query waits for it forever.
    "-XX:+ExitOnOutOfMemoryError",
)
OUT_OF_MEMORY = 3
"""The exit code of a JVM that runs out of memory with `-XX:+ExitOnOutOfMemoryError`."""
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Options against log lines about an archive of another Java or of other jars, which the JVM ignores."""


def class_path() -> str:
    """Return the class path, beside Spark's own jars, of a JVM that is both driver and executor.

    Raises:
        JarsError: a jar can't be fetched.
    """
    return ":".join(str(path) for of in ("files", "spark") for path in jars.fetch(of))


def archive_folder() -> Path:
    """Return the folder of archives of Spark's classes: in this Python's environment, which has the jars."""
    return Path(sys.prefix) / "share" / "tallystream"


def archive_name(java: str, size: int) -> str:
    """Return the name of the archive of Spark's classes for a version of Java and for the current jars.

    `size` is the file's size in bytes. It is in the name because a JVM that maps a truncated archive is killed.
    """
    return f"spark-classes-java-{java}-{_jars_digest()}-{size}.jsa"


def archive_of(java: str) -> Path | None:
    """Return the archive for a version of Java and the current jars, or None if none is complete and readable."""
    for path in archive_folder().glob("*.jsa"):
        if path.name == archive_name(java, path.stat().st_size) and os.access(path, os.R_OK):
            return path
    return None


def _jars_digest() -> str:
    # The JVM compares the same properties to tell whether an archive fits its class path.
    spark = Path(pyspark.__file__).with_name("jars")
    found = [*sorted(spark.glob("*.jar")), *map(Path, class_path().split(":"))]
    listing = "".join(f"{jar} {jar.stat().st_size} {int(jar.stat().st_mtime)}\n" for jar in found)
    return hashlib.sha256(listing.encode()).hexdigest()[:12]


def options(java: str) -> list[str]:
    """Return the JVM's options, with the archive of Spark's classes (spark.cds_archive) if there is one."""
    archive = archive_of(java)
    return [*OPTIONS, f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive else [*OPTIONS]


def archiving(to: Path) -> list[str]:
    """Return the options of a JVM that writes the classes that it has loaded to an archive when it ends."""
    return [*OPTIONS, f"-XX:ArchiveClassesAtExit={to}", *_QUIET]
