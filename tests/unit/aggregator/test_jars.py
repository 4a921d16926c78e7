"""The list of jars: exact, complete, and verified before a jar is used."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest

from tallystream_aggregator import jars
from tallystream_aggregator.jars import ivy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("of", ["spark", "files", "broker"])
def test_every_jar_is_pinned_by_revision_and_digest(of: str) -> None:
    """No range, no snapshot, a SHA-256 for each, no jar twice."""
    lock = jars.read_lock(of)
    assert lock
    for jar in lock:
        assert re.fullmatch(r"\d[\w.\-]*", jar.revision)
        assert "SNAPSHOT" not in jar.revision
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
    assert len({(jar.group, jar.artifact) for jar in lock}) == len(lock)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TALLYSTREAM_CACHE goes before XDG_CACHE_HOME, and that before the home folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("TALLYSTREAM_CACHE", raising=False)
    assert jars.cache_dir() == tmp_path / "xdg" / "tallystream"
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path / "own"))
    assert jars.cache_dir() == tmp_path / "own"


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with the one jar of the list; a Java that serves a jar of that content, and notes that it was asked."""
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        f'#!/bin/sh\nfor last; do :; done; out=$(dirname "$last"); mkdir -p "$out"; printf genuine > "$out/a-1.jar"\n'
        f'touch "{tmp_path}/asked"\n',
        encoding="utf-8",
    )
    java.chmod(0o755)
    jar = jars.Jar("spark", "g", "a", "1", hashlib.sha256(b"genuine").hexdigest())
    monkeypatch.setattr(ivy, "read_lock", lambda of: [jar] if of == "spark" else [])
    path = tmp_path / "jars" / "spark" / "a-1.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"genuine")
    return path


def test_what_is_in_the_cache_is_not_downloaded(cached: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full cache needs no Java and no network."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert jars.fetch("spark") == [cached]


def test_a_cached_jar_that_was_changed_is_downloaded_again(cached: Path, tmp_path: Path) -> None:
    """At every use the SHA-256 is that of the list; also for a change after the first use, of the same size."""
    for content in (b"gen", b"forgery"):
        assert jars.fetch("spark") == [cached]
        (tmp_path / "asked").unlink(missing_ok=True)
        cached.write_bytes(content)
        assert jars.fetch("spark") == [cached]
        assert cached.read_bytes() == b"genuine"
        assert (tmp_path / "asked").exists()


def test_a_cached_jar_that_was_changed_and_can_not_be_had_is_not_used(
    cached: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without Java there is no download: an error, rather than the changed jar."""
    cached.write_bytes(b"forgery")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(jars.JarsError, match="install Java 17 or 21"):
        jars.fetch("spark")


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One sentence with the remedy, and nothing left in the cache."""
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(jars.JarsError, match="install Java 17 or 21"):
        jars.fetch("spark")
    assert not list((tmp_path / "jars" / "spark").glob("*.jar"))


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
    """What the resolver wrote is compared with the list before it gets into the cache."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jar = jars.Jar("spark", "g", "a", "1", "0" * 64)
    folder = tmp_path / "cache"
    folder.mkdir()
    with pytest.raises(jars.JarsError, match=message):
        ivy._retrieve([jar], folder, 30)
    assert not (folder / "a-1.jar").exists()


def test_what_ivy_is_asked_for_is_the_list_and_nothing_else() -> None:
    """Every dependency is exact and none is transitive; hostile text is quoted."""
    text = ivy._ivy_xml([jars.Jar("spark", "g", 'a"&', "1", "0" * 64)])
    assert text.count("<dependency ") == text.count('transitive="false"') == 1
    assert "'a\"&amp;'" in text
