"""The JVM that Spark runs in: which Java it may be, with which options and classes it is started."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tallystream.aggregator import jars
from tallystream.reporter.errors import ConfigError

JAVA_VERSIONS = (17, 21)
LOGGING = Path(__file__).with_name("log4j2.properties")
OPTIONS = (
    f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    # Without the slow compiler: each batch has a plan, and code, of its own, and little else runs for long (0012).
    "-XX:TieredStopAtLevel=1",
    # Without that one, Java gives compiled code 48 MB in the place of 240, and throws away, and makes again, what a
    # batch needs: twice as much is compiled, and now and then a batch takes a second.
    "-XX:ReservedCodeCacheSize=240m",
)
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""An archive that does not fit, of another Java or of older jars, is left alone by the JVM: it need not say so."""


def java_version() -> str:
    """Return the version of the Java that Spark will be started with, such as 17.0.15.

    Raises:
        ConfigError: there is none, or it is not one that Spark runs on.
    """
    launcher = jars.java()
    try:
        said = subprocess.run([launcher, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except FileNotFoundError as error:
        raise ConfigError("java", launcher, "install Java 17 or 21, or point JAVA_HOME at one") from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', said)
    if found is None or int(found.group(2)) not in JAVA_VERSIONS:
        line = said.strip().splitlines()[0] if said.strip() else launcher
        raise ConfigError("java", line, "install Java 17 or 21, or point JAVA_HOME at one")
    return found.group(1)


def class_path() -> str:
    """Return what a JVM that is driver and executor at once needs beside Spark's own jars.

    Raises:
        JarsError: a jar can't be had.
    """
    return ":".join(str(path) for of in ("files", "spark") for path in jars.fetch(of))


def archive_path(java: str, size: int) -> Path:
    """Return where the archive of Spark's classes for a version of Java is, in this Python's environment.

    `size` is the file's, in bytes: a JVM that maps one that was cut short is killed, so it has to be known.
    """
    return Path(sys.prefix) / "share" / "tallystream" / f"spark-classes-java-{java}-{size}.jsa"


def archive_of(java: str) -> Path | None:
    """Return the archive for a version of Java, if there is one that is whole and may be read."""
    for path in archive_path(java, 0).parent.glob(f"spark-classes-java-{java}-*.jsa"):
        if os.access(path, os.R_OK) and path == archive_path(java, path.stat().st_size):
            return path
    return None


def options(java: str) -> list[str]:
    """Return the options of the JVM, which uses the archive (tallystream.aggregator.spark.archive) if there is one."""
    archive = archive_of(java)
    return [*OPTIONS, f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive else [*OPTIONS]


def archiving(to: Path) -> list[str]:
    """Return the options of a JVM that writes the classes that it has loaded to an archive when it ends."""
    return [*OPTIONS, f"-XX:ArchiveClassesAtExit={to}", *_QUIET]
