"""The session of Spark: the archive of its classes, the sockets, and the path of its Python processes."""

from __future__ import annotations

import functools
import importlib.util
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator import jars
from tallystream_aggregator.spark import cds_archive, session

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python environment without an archive of classes, and with the jar `own.jar` on the class path."""
    jar = tmp_path / "own.jar"
    jar.write_bytes(b"a jar")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(jars, "class_path", lambda: str(jar))
    monkeypatch.setattr(jars, "java_version", lambda: "17.0.9")
    return tmp_path


def _archive(java: str, *, content: bytes = b"classes") -> Path:
    cds_archive.archive_folder().mkdir(parents=True, exist_ok=True)
    path = cds_archive.archive_folder() / cds_archive.archive_name(java, 7)
    path.write_bytes(content)
    return path


def test_an_archive_is_used_by_its_version_of_java(environment: Path) -> None:
    """Without an archive, or with that of another Java, the JVM has no option for one."""
    assert not any("Archive" in option for option in session.jvm_options("17.0.1"))
    path = _archive("17.0.1")
    assert path.is_relative_to(environment)
    assert f"-XX:SharedArchiveFile={path}" in session.jvm_options("17.0.1")
    assert not any("Archive" in option for option in session.jvm_options("21.0.2"))


def test_an_archive_of_other_jars_is_not_used(environment: Path) -> None:
    """After an update of a jar the JVM would ignore the archive, so a new one can be made."""
    path = _archive("17.0.1")
    assert cds_archive.archive_of("17.0.1") == path
    (environment / "own.jar").write_bytes(b"a newer jar")
    assert cds_archive.archive_of("17.0.1") is None


@pytest.mark.usefixtures("environment")
def test_a_truncated_archive_is_not_used() -> None:
    """A JVM that maps a truncated archive is killed."""
    _archive("17.0.1", content=b"class")
    assert not any("Archive" in option for option in session.jvm_options("17.0.1"))


@pytest.mark.usefixtures("environment")
def test_an_existing_archive_is_not_made_again() -> None:
    """`make` returns its path without starting Spark."""
    path = _archive("17.0.9")
    assert cds_archive.make() == path
    assert path.read_bytes() == b"classes"


def test_a_folder_that_cannot_be_written_is_named(environment: Path) -> None:
    """The error names the folder and what to do."""
    (environment / "share").write_text("a file instead of the folder", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"share/tallystream.*let this user write there"):
        cds_archive.make()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, with a short path. The folder for sockets is created again."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setattr(session, "_socket_folder", functools.cache(session._socket_folder.__wrapped__))
        yield Path(folder)


def test_only_this_user_may_enter_the_folder_of_sockets(temporary: Path) -> None:
    """A Unix domain socket asks for no password. All sessions of a process use the same folder."""
    settings = session.socket_settings()
    folder = Path(settings[session.SOCKET_FOLDER])
    assert settings[session.SOCKETS] == "true"
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert session.socket_settings() == settings


def test_a_folder_with_a_long_path_means_tcp(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system rejects a socket with a longer path, and Spark would start no Python process."""
    long = temporary / ("x" * session.MAX_FOLDER_BYTES)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert session.socket_settings() == {session.SOCKETS: "false"}


ZIPS = ("/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip")


def _paths(*folders: str) -> list[str]:
    """Return the path of a Python with these folders first, and the file of its sitecustomize. It logs nothing."""
    code = "import sys; print(*sys.path, sys.modules['sitecustomize'].__file__, sep='\\n')"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_zips_are_removed_from_the_path(tmp_path: Path) -> None:
    """The environment's own sitecustomize is imported, too."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("")
    *path, started = _paths(*ZIPS, str(session._STARTUP), str(own))
    assert started == str(own / "sitecustomize.py")
    assert str(own) in path
    assert not {*ZIPS, str(session._STARTUP)} & set(path)


def test_an_environment_without_a_sitecustomize_logs_nothing() -> None:
    """Python reports a module that is removed after its import. Debian's Python has a sitecustomize, which is kept."""
    own = importlib.util.find_spec("sitecustomize")
    *path, started = _paths(*ZIPS, str(session._STARTUP))
    assert started == (str(session._STARTUP / "sitecustomize.py") if own is None else own.origin)
    assert not {*ZIPS, str(session._STARTUP)} & set(path)
