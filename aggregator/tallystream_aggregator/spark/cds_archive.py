"""`python -m tallystream_aggregator.spark.cds_archive`: make an archive of Spark's classes, which halves start-up time.

With class data sharing (JEP 350), a JVM writes the classes that it has loaded to an archive when it ends. Later JVMs
map the archive into memory instead of reading and verifying 20,000 classes from 250 jars. The archive is only valid for
one version of Java and for exactly these jars; any other JVM ignores it. It takes about 200 MB in the Python
environment, and a minute or more to make.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import jars

TIMEOUT_S = 600.0
"""How long the making of an archive may take, in seconds."""


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
    found = [*sorted(spark.glob("*.jar")), *map(Path, jars.class_path().split(":"))]
    listing = "".join(f"{jar} {jar.stat().st_size} {int(jar.stat().st_mtime)}\n" for jar in found)
    return hashlib.sha256(listing.encode()).hexdigest()[:12]


def make() -> Path:
    """Make the archive for this Java and these jars, if there is none, and return its path.

    Raises:
        ConfigError: Java is missing or of a version on which Spark does not run, or this Python's environment is not
            writable.
        JarsError: the jars can't be fetched.
        TallystreamError: the archive was not written, or not in time.
    """
    java = jars.java_version()
    if (path := archive_of(java)) is not None:
        return path
    folder = archive_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as name:
            written = Path(name) / "classes.jsa"
            # In its own process, whose output is only shown if it fails.
            command = [sys.executable, "-m", "tallystream_aggregator.spark.cds_source", str(written)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            if done.returncode or not written.exists():
                raise TallystreamError(
                    f"no archive of Spark's classes was made, everything works without it: {done.stderr[-800:]}"
                )
            for old in folder.glob("*.jsa"):  # of other jars or another Java
                old.unlink()
            return written.replace(folder / archive_name(java, written.stat().st_size))
    except subprocess.TimeoutExpired as error:
        raise TallystreamError(
            f"no archive of Spark's classes was made within {TIMEOUT_S:.0f} s; run it again."
        ) from error
    except OSError as error:
        raise ConfigError("environment", str(folder), "let this user write there; or do without") from error


if __name__ == "__main__":
    try:
        sys.stderr.write(f"archive: {make()}\n")
    except TallystreamError as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(2)
