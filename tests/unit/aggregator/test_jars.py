"""The list of jars, their download and verification, and the version of Java."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator import jars

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("of", ["files", "broker", "opentelemetry", "tools", "broker-3.9", "connector"])
def test_every_jar_is_pinned_by_revision_and_digest(of: str) -> None:
    """Each has an exact revision and a SHA-256, and is listed once."""
    lock = jars.read_lock(of)
    assert lock
    for jar in lock:
        assert re.fullmatch(r"\d[\w.\-]*", jar.revision)
        assert "SNAPSHOT" not in jar.revision
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
    assert len({(jar.group, jar.artifact) for jar in lock}) == len(lock)


def test_the_environment_names_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TALLYSTREAM_CACHE takes precedence over XDG_CACHE_HOME."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("TALLYSTREAM_CACHE", raising=False)
    assert jars.cache_dir() == tmp_path / "xdg" / "tallystream"
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path / "own"))
    assert jars.cache_dir() == tmp_path / "own"


def test_a_user_without_a_home_folder_has_to_name_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable."""
    for name in ("XDG_CACHE_HOME", "TALLYSTREAM_CACHE", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # a user ID that the system does not know
    with pytest.raises(ConfigError, match="TALLYSTREAM_CACHE is not set; name a folder"):
        jars.cache_dir()


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with the only jar of the list, and a Java that downloads that jar and creates the file `downloaded`."""
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        f'#!/bin/sh\nfor last; do :; done; out=$(dirname "$last"); mkdir -p "$out"; printf genuine > "$out/a-1.jar"\n'
        f'touch "{tmp_path}/downloaded"\n',
        encoding="utf-8",
    )
    java.chmod(0o755)
    jar = jars.Jar("g", "a", "1", hashlib.sha256(b"genuine").hexdigest())
    monkeypatch.setattr(jars, "read_lock", lambda of: [jar] if of == "files" else [])
    path = tmp_path / "jars" / "files" / "a-1.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"genuine")
    return path


def test_a_cached_jar_is_not_downloaded(cached: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full cache needs no Java and no network."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert jars.fetch("files") == [cached]


def test_a_cached_jar_that_was_changed_is_downloaded_again(cached: Path, tmp_path: Path) -> None:
    """Each use compares the SHA-256."""
    for content in (b"gen", b"forgery"):
        assert jars.fetch("files") == [cached]
        (tmp_path / "downloaded").unlink(missing_ok=True)
        cached.write_bytes(content)
        assert jars.fetch("files") == [cached]
        assert cached.read_bytes() == b"genuine"
        assert (tmp_path / "downloaded").exists()


def test_a_changed_jar_that_cannot_be_downloaded_is_not_used(
    cached: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without Java there is no download, so `fetch` raises an error."""
    cached.write_bytes(b"forgery")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(jars.JarsError, match="install Java 17 or 21"):
        jars.fetch("files")


def test_the_error_without_java_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing stays in the cache."""
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(jars.JarsError, match="install Java 17 or 21"):
        jars.fetch("files")
    assert not list((tmp_path / "jars" / "files").glob("*.jar"))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("true", "was not served"),
        (
            'for last; do :; done; mkdir -p "$(dirname "$last")"; printf forged > "$(dirname "$last")/a-1.jar"',
            "SHA-256",
        ),
    ],
)
def test_a_jar_that_is_missing_or_forged_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, message: str
) -> None:
    """A downloaded jar is compared with the list before it is moved into the cache."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jar = jars.Jar("g", "a", "1", "0" * 64)
    folder = tmp_path / "cache"
    folder.mkdir()
    with pytest.raises(jars.JarsError, match=message):
        jars._retrieve([jar], folder)
    assert not (folder / "a-1.jar").exists()


def _java(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    launcher = folder / "jdk" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho '{output}' >&2\n", encoding="utf-8")
    launcher.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder / "jdk"))


@pytest.mark.parametrize(
    ("output", "version"),
    [('openjdk version "17.0.15" 2025-04-15', "17.0.15"), ('java version "21" 2023-09-19', "21")],
)
def test_java_17_and_21_are_accepted(
    output: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version may have a minor version or not."""
    _java(tmp_path, monkeypatch, output)
    assert jars.java_version() == version


@pytest.mark.parametrize("output", ['openjdk version "1.8.0_392"', 'openjdk version "11.0.2"', "no Java at all"])
def test_another_java_is_rejected(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the output of Java, and names what to install."""
    _java(tmp_path, monkeypatch, output)
    with pytest.raises(ConfigError, match="install Java 17 or 21") as raised:
        jars.java_version()
    assert output in str(raised.value)
