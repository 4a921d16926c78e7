"""The list of jars, their download and verification."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_cli.servers import jars

if TYPE_CHECKING:
    from pathlib import Path


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
    """TALLYSTREAM_CACHE takes precedence over XDG_CACHE_HOME. Without a home folder, it has to be named."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("TALLYSTREAM_CACHE", raising=False)
    assert jars.cache_dir() == tmp_path / "xdg" / "tallystream"
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path / "own"))
    assert jars.cache_dir() == tmp_path / "own"
    for name in ("XDG_CACHE_HOME", "TALLYSTREAM_CACHE", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # a user ID that the system does not know
    with pytest.raises(ConfigError, match="TALLYSTREAM_CACHE is not set; name a folder"):
        jars.cache_dir()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of the only jar in a repository, which is a folder; the cache is empty."""
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "REPOSITORY", f"file://{tmp_path}")
    jar = jars.Jar("org.g", "a", "1", hashlib.sha256(b"genuine").hexdigest())
    monkeypatch.setattr(jars, "read_lock", lambda of: [jar] if of == "broker" else [])
    path = tmp_path / "org" / "g" / "a" / "1" / "a-1.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"genuine")
    return path


def test_a_jar_is_downloaded_unless_the_cache_has_it(served: Path) -> None:
    """Each use compares the SHA-256, so one that was changed is downloaded again. A full cache needs no network."""
    (cached,) = jars.fetch("broker")
    for content in (b"gen", b"forgery"):
        cached.write_bytes(content)
        assert jars.fetch("broker") == [cached]
        assert cached.read_bytes() == b"genuine"
    served.unlink()
    assert jars.fetch("broker") == [cached]
    assert list(cached.parent.iterdir()) == [cached]


def test_a_jar_that_is_missing_or_forged_is_not_used(served: Path, tmp_path: Path) -> None:
    """A downloaded jar is compared with the list before it is moved into the cache."""
    served.write_bytes(b"forgery")
    with pytest.raises(jars.JarsError, match="SHA-256"):
        jars.fetch("broker")
    served.unlink()
    with pytest.raises(jars.JarsError, match=r"a-1\.jar can't be downloaded"):
        jars.fetch("broker")
    assert list((tmp_path / "cache" / "jars" / "broker").iterdir()) == []
