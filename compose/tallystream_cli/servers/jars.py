"""Fetch the jars of a local broker.

`jars.lock` lists the jars of each set. Missing jars are downloaded with the Ivy inside PySpark, so no build tool is
needed, into the user's cache. Each call compares every jar with its SHA-256 in the list.
`python -m tallystream_cli.servers.jars broker` fetches the named sets, by default this one. The others are only for
tests.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import java

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 600.0
"""How long the download of a set of jars may take, in seconds."""


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 of a file in hexadecimal, or None if the file does not exist.

    Raises:
        OSError: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Jar:
    """An artifact by its Maven coordinates, and the digest that its file must have."""

    group: str
    artifact: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the jar's file in the cache."""
        return f"{self.artifact}-{self.revision}.jar"


def read_lock(of: str) -> list[Jar]:
    """Return the jars of a set, such as `broker`, in the order of the list."""
    text = (files("tallystream_cli.servers") / "jars.lock").read_text(encoding="utf-8")
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            set_, coordinates, sha256 = line.split()
            if set_ == of:
                group, artifact, revision = coordinates.split(":")
                jars.append(Jar(group, artifact, revision, sha256))
    return jars


class JarsError(TallystreamError):
    """A jar could not be downloaded, or its digest is not the one in the list."""


def cache_dir() -> Path:
    """Return the folder of downloads: `TALLYSTREAM_CACHE`, or else `tallystream` in the user's cache folder.

    Raises:
        ConfigError: neither is set, and the user has no home folder.
    """
    try:
        if named := os.environ.get("TALLYSTREAM_CACHE"):
            return Path(named).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tallystream"
    except RuntimeError as error:
        raise ConfigError("TALLYSTREAM_CACHE", "", "name a folder: the user has no home folder") from error


def fetch(of: str) -> list[Path]:
    """Return the paths of the jars of the set `of`. Download those that are missing or were changed.

    Several processes may call this at the same time: then each downloads.

    Raises:
        ConfigError: the cache can't be used.
        JarsError: a jar could not be downloaded in time, or its SHA-256 is not the one in the list.
    """
    with _folder(of) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        if to_download := missing(of):
            _retrieve(to_download, folder)
        return [folder / jar.file_name for jar in read_lock(of)]


def missing(of: str) -> list[Jar]:
    """Return the jars of a set that `fetch` downloads.

    Raises:
        ConfigError: the cache can't be used.
    """
    with _folder(of) as folder:
        return [jar for jar in read_lock(of) if sha256_of(folder / jar.file_name) != jar.sha256]


@contextmanager
def _folder(of: str) -> Iterator[Path]:
    """Yield the folder of a set. An error of the system in the block becomes a ConfigError."""
    folder = cache_dir() / "jars" / of
    try:
        yield folder
    except OSError as error:
        remedy = f"name a folder that this user may write; the system reports: {error}"
        raise ConfigError("TALLYSTREAM_CACHE", str(folder), remedy) from error


def _retrieve(jars: list[Jar], folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".ivy-") as name:
        work = Path(name)
        (work / "ivy.xml").write_text(_ivy_xml(jars), encoding="utf-8")
        command = [
            java.launcher(),
            "-jar",
            str(_ivy_jar()),
            "-cache",
            str(work / "cache"),
            "-ivy",
            str(work / "ivy.xml"),
        ]
        command += ["-warn", "-retrieve", str(work / "out" / "[artifact]-[revision].[ext]")]
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except FileNotFoundError as error:
            raise JarsError("java: no Java was found on the PATH; install Java 17 or 21 or set JAVA_HOME.") from error
        except subprocess.TimeoutExpired as error:
            raise JarsError(f"jars: the download took longer than {TIMEOUT_S:.0f} s; run the command again.") from error
        for jar in jars:
            got = work / "out" / jar.file_name
            if not got.exists():
                raise JarsError(f"jars: {jar.group}:{jar.artifact}:{jar.revision} was not served: {done.stdout[-800:]}")
            digest = sha256_of(got)
            if jar.sha256 != digest:
                raise JarsError(f"jars: {jar.file_name} has SHA-256 {digest}, the list says {jar.sha256}; not used.")
            got.replace(folder / jar.file_name)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("pyspark: it is not installed; install tallystream-aggregator[spark].")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _ivy_xml(jars: list[Jar]) -> str:
    # Not transitive: only the jars of the list are used, which are the ones that were tested.
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.revision}" transitive="false"'
        ' conf="default->default"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="tallystream" module="jars"/><configurations>'
        f'<conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def main(sets: list[str]) -> int:
    """Fetch each set and return the exit code: 2 if a set could not be fetched, else 0."""
    for name in sets:
        started = time.monotonic()
        try:
            paths = fetch(name)
        except TallystreamError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        if (took_s := time.monotonic() - started) > 1:
            sys.stderr.write(f"jars: {len(paths)} jars of {name} fetched and verified in {took_s:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["broker"]))
