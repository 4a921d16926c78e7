"""The list of jars, their download and verification."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystream.errors import ConfigError
from tallystream_cli.servers import jars


@pytest.mark.parametrize("of", ["broker", "opentelemetry", "tools", "broker-3.9", "connector"])
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


@pytest.mark.parametrize("call", [jars.fetch, jars.missing])
def test_a_cache_that_can_not_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: Callable[[str], object]
) -> None:
    """As if the cache is a file, or below one: the error names the variable, the folder and the reason."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"TALLYSTREAM_CACHE.*file/jars/broker.*Not a directory"):
        call("broker")


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
    monkeypatch.setattr(jars, "read_lock", lambda of: [jar] if of == "broker" else [])
    path = tmp_path / "jars" / "broker" / "a-1.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"genuine")
    return path


def test_a_cached_jar_is_not_downloaded(cached: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full cache needs no Java and no network."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert jars.fetch("broker") == [cached]


def test_a_cached_jar_that_was_changed_is_downloaded_again(cached: Path, tmp_path: Path) -> None:
    """Each use compares the SHA-256."""
    for content in (b"gen", b"forgery"):
        assert jars.fetch("broker") == [cached]
        (tmp_path / "downloaded").unlink(missing_ok=True)
        cached.write_bytes(content)
        assert jars.fetch("broker") == [cached]
        assert cached.read_bytes() == b"genuine"
        assert (tmp_path / "downloaded").exists()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "install Java 17 or 21"),
        ("true", "was not served"),
        (
            'for last; do :; done; mkdir -p "$(dirname "$last")"; printf forged > "$(dirname "$last")/a-1.jar"',
            "SHA-256",
        ),
    ],
    ids=["no Java", "missing", "forged"],
)
def test_a_jar_that_is_not_that_of_the_list_is_not_used(
    cached: Path, tmp_path: Path, script: str | None, message: str
) -> None:
    """A downloaded jar is compared with the list before it is moved into the cache."""
    cached.write_bytes(b"changed")
    java = tmp_path / "bin" / "java"
    if script is None:
        java.unlink()
    else:
        java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    with pytest.raises(jars.JarsError, match=message):
        jars.fetch("broker")
    assert cached.read_bytes() == b"changed"
