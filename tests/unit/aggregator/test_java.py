"""The version of Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator import java

if TYPE_CHECKING:
    from pathlib import Path


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
    assert java.version() == version


@pytest.mark.parametrize("output", ['openjdk version "1.8.0_392"', 'openjdk version "11.0.2"', "no Java at all"])
def test_another_java_is_rejected(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the output of Java, and names what to install."""
    _java(tmp_path, monkeypatch, output)
    with pytest.raises(ConfigError, match="install Java 17 or 21") as raised:
        java.version()
    assert output in str(raised.value)
