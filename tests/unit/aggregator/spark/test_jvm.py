"""The JVM's options, and which Java may be used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator import jars
from tallystream_aggregator.spark import cds_archive, jvm

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python environment without an archive of classes, and with the jar `own.jar` on the class path."""
    jar = tmp_path / "own.jar"
    jar.write_bytes(b"a jar")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(jvm, "class_path", lambda: str(jar))
    return tmp_path


def _archive(java: str, *, of: bytes = b"classes", size: int = 7) -> Path:
    jvm.archive_folder().mkdir(parents=True, exist_ok=True)
    path = jvm.archive_folder() / jvm.archive_name(java, size)
    path.write_bytes(of)
    return path


def _java(folder: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    launcher = folder / "jdk" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    launcher.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder / "jdk"))


def test_an_archive_of_classes_is_used_where_there_is_one(environment: Path) -> None:
    """Without an archive the JVM is started plainly, with one it maps it, and each version of Java has its own."""
    assert not any("Archive" in option for option in jvm.options("17.0.1"))
    path = _archive("17.0.1")
    assert path.is_relative_to(environment)
    assert f"-XX:SharedArchiveFile={path}" in jvm.options("17.0.1")
    assert not any("Archive" in option for option in jvm.options("21.0.2"))


def test_an_archive_of_other_jars_is_not_used(environment: Path) -> None:
    """After an update of a jar the archive is another's: the JVM would leave it alone, and a new one can be made."""
    path = _archive("17.0.1")
    assert jvm.archive_of("17.0.1") == path
    (environment / "own.jar").write_bytes(b"a newer jar")
    assert jvm.archive_of("17.0.1") is None


@pytest.mark.usefixtures("environment")
def test_an_archive_that_was_cut_short_is_not_used() -> None:
    """A JVM that maps a file shorter than it should be dies of it: such a one is not given to it."""
    _archive("17.0.1", of=b"class")
    assert not any("Archive" in option for option in jvm.options("17.0.1"))


def test_an_archive_that_exists_is_not_made_again(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the archive where there is one returns it, untouched, without starting Spark."""
    _java(environment, monkeypatch, 'openjdk version "17.0.9" 2023-10-17')
    path = _archive("17.0.9")
    assert cds_archive.make() == path
    assert path.read_bytes() == b"classes"


def test_a_folder_that_cant_be_written_is_named(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment can't be written, the sentence names the folder and what to do."""
    _java(environment, monkeypatch, 'openjdk version "17.0.9" 2023-10-17')
    (environment / "share").write_text("a file where the folder would be", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"share/tallystream.*let this user write there"):
        cds_archive.make()


@pytest.mark.parametrize(
    ("says", "version"),
    [('openjdk version "17.0.15" 2025-04-15', "17.0.15"), ('java version "21" 2023-09-19', "21")],
)
def test_the_version_of_java_is_read(says: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java 17 and 21 are taken, with or without a minor version."""
    _java(tmp_path, monkeypatch, says)
    assert jars.java_version() == version


@pytest.mark.parametrize("says", ['openjdk version "1.8.0_392"', 'openjdk version "11.0.2"', "no Java at all"])
def test_another_java_is_refused(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java on which Spark does not run is named in the sentence, with what to install."""
    _java(tmp_path, monkeypatch, says)
    with pytest.raises(ConfigError, match="install Java 17 or 21") as refused:
        jars.java_version()
    assert says in str(refused.value)
