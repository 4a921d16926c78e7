"""Fetch the jars of a local broker.

`jars.lock` lists the jars of each set. Missing jars are downloaded from Maven Central into the user's cache. Each call
compares every jar with its SHA-256 in the list. `python -m tallystream_cli.servers.jars broker` fetches the named sets,
by default this one. The others are only for tests.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from urllib.request import urlopen

from tallystream.errors import ConfigError, TallystreamError

REPOSITORY = "https://repo1.maven.org/maven2"
TIMEOUT_S = 60.0
"""How long the server may send nothing, in seconds."""


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

    @property
    def url(self) -> str:
        """Where it is downloaded."""
        return f"{REPOSITORY}/{self.group.replace('.', '/')}/{self.artifact}/{self.revision}/{self.file_name}"


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
        JarsError: a jar could not be downloaded, or its SHA-256 is not the one in the list.
    """
    jars = read_lock(of)
    folder = cache_dir() / "jars" / of
    folder.mkdir(parents=True, exist_ok=True)
    missing = [jar for jar in jars if sha256_of(folder / jar.file_name) != jar.sha256]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda jar: _download(jar, folder), missing))
    return [folder / jar.file_name for jar in jars]


def _download(jar: Jar, folder: Path) -> None:
    try:
        with urlopen(jar.url, timeout=TIMEOUT_S) as response:  # noqa: S310 (the repository's URL)
            content = response.read()
    except (OSError, HTTPException) as error:
        raise JarsError(f"jars: {jar.url} can't be downloaded ({error}); run the command again.") from error
    digest = hashlib.sha256(content).hexdigest()
    if jar.sha256 != digest:
        raise JarsError(f"jars: {jar.file_name} has SHA-256 {digest}, the list says {jar.sha256}; not used.")
    new = folder / f".{jar.file_name}.{os.getpid()}"
    new.write_bytes(content)
    new.replace(folder / jar.file_name)


def main(sets: list[str]) -> int:
    """Fetch each set and return the exit code: 2 if a set could not be fetched, else 0."""
    for name in sets:
        started = time.monotonic()
        try:
            paths = fetch(name)
        except JarsError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        if (took_s := time.monotonic() - started) > 1:
            sys.stderr.write(f"jars: {len(paths)} jars of {name} fetched and verified in {took_s:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["broker"]))
