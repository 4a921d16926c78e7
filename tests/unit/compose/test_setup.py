"""scripts/setup without a suitable Java or Python, with fake programs on the PATH."""

from __future__ import annotations

import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETUP = ROOT / "scripts" / "setup"
TOOLS = ("bash", "env", "dirname", "sed", "head")


def fake(folder: Path, name: str, script: str) -> None:
    """Create a program in a folder of the PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A PATH with the tools that the script needs, without Java and Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


def run(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script in a temporary folder, with this PATH."""
    copy = folder.parent / "scripts" / "setup"
    copy.parent.mkdir()
    shutil.copy(SETUP, copy)
    return subprocess.run(
        [str(folder / "bash"), str(copy)],
        env={"PATH": str(folder), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


OLD_PYTHON = 'case "$1" in --version) echo "Python 3.9.2";; *) exit 1;; esac'


@pytest.mark.parametrize(
    ("python", "java", "error"),
    [
        (OLD_PYTHON, None, "python: none of version 3.11 or newer was found.*python3 is Python 3.9.2.*PYTHON="),
        ("exit 0", None, "java: no Java was found.*install Java 17 or 21"),
        *(
            ("exit 0", line, f"java: version 17 or 21 is needed, found: {re.escape(line)}; install one")
            for line in (
                'java version "1.8.0_392"',
                'openjdk version "25" 2025-09-16',
                "some other program called java",
            )
        ),
    ],
)
def test_a_missing_or_unsuitable_program(bin_folder: Path, python: str, java: str | None, error: str) -> None:
    """The error is one line that says what was found and what to do; the exit code is 2."""
    fake(bin_folder, "python3", python)
    if java is not None:
        fake(bin_folder, "java", f"printf '%s\\n' '{java}' 'more of it' >&2")
    done = run(bin_folder)
    assert done.returncode == 2
    assert re.match(error, done.stderr)
    assert done.stderr.count("\n") == 1


def test_the_jars_of_pyspark_are_not_compressed_again() -> None:
    """The file that scripts/setup and docs/install.md give to setuptools sets only `compression`."""
    config = ConfigParser()
    config.read(ROOT / "compose" / "images" / "wheels.cfg", encoding="utf-8")
    assert dict(config["bdist_wheel"]) == {"compression": "stored"}
    for user in (SETUP, ROOT / "docs" / "install.md"):
        assert "DIST_EXTRA_CONFIG=$PWD/compose/images/wheels.cfg" in user.read_text(encoding="utf-8")
