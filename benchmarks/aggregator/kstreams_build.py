"""Builds the Kafka Streams application by Maven, once for each state of its sources."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).with_name("kstreams")
OUT = Path(__file__).parents[2] / ".build" / "bench-aggregator" / "kstreams"


class BuildError(Exception):
    """It can't be built here; the message says what is missing, or ends with what Maven said."""


@cache
def classpath() -> tuple[str, ...]:
    """Return the entries of the class path, built if need be (some seconds, longer where nothing is cached).

    Raises:
        BuildError: there is no Maven, or it failed.
    """
    stamp, want = OUT / "built", _digest()
    if not stamp.exists() or stamp.read_text() != want:
        _build()
        stamp.write_text(want)
    return (str(OUT / "app" / "classes"), *sorted(str(path) for path in (OUT / "lib").glob("*.jar")))


def _digest() -> str:
    files = sorted(path for path in SOURCES.rglob("*") if path.suffix in (".java", ".xml"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _build() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BuildError("mvn: Maven was not found on the PATH: install it, or leave its side out with --sides ours")
    print("bench: building the Kafka Streams application", file=sys.stderr)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    command = [
        *(maven, "-B", "-q", "-f", str(SOURCES / "pom.xml"), f"-Dbench.out={OUT}"),
        *("package", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={OUT / 'lib'}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    if done.returncode:
        raise BuildError(f"mvn: it failed with {done.returncode}:\n{(done.stdout + done.stderr).strip()[-2000:]}")
