"""Where Spark's sockets are: where nobody else may enter, and where their names fit."""

from __future__ import annotations

import functools
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tallystream_aggregator.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, which is short; the one for sockets is chosen again."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setattr(jvm, "_folder", functools.cache(jvm._folder.__wrapped__))
        yield Path(folder)


def test_sockets_are_in_a_folder_that_nobody_else_may_enter(temporary: Path) -> None:
    """A Unix socket asks for no secret. It is the same folder for all sessions of a process."""
    settings = jvm.settings()
    folder = Path(settings[jvm.FOLDER])
    assert settings[jvm.ENABLED] == "true"
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert jvm.settings() == settings


def test_where_a_socket_s_path_would_not_fit_it_is_tcp(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system would refuse it, and Spark would not start a single Python process."""
    long = temporary / ("x" * jvm.MOST_BYTES)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert jvm.settings() == {jvm.ENABLED: "false"}
