"""Programs that no package registry has: each is built once from its source, into the user's cache."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tallystream.errors import TallystreamError

MAX_BUILD_S = 3600


class BuildError(TallystreamError):
    """The build failed; the message ends with the compiler's last output."""


class MissingError(TallystreamError):
    """There is no program, and a tool to build one is missing."""


class Program(NamedTuple):
    """A program and its path in the cache.

    `tools` are the programs that a build needs, or one of several; `build` builds in a folder, and returns the binary.
    """

    name: str
    path: Path
    tools: Sequence[Sequence[str]]
    build: Callable[[Path], Path]


def find_or_build(program: Program) -> Path:
    """Return the path of a program in the cache. If it is missing, build it, which takes minutes.

    A file lock makes one process build while others wait.

    Raises:
        MissingError: a tool to build it is missing.
        BuildError: the build failed.
    """
    name, target, tools, build = program
    if target.exists():
        return target
    if missing := [" or ".join(names) for names in tools if not any(map(shutil.which, names))]:
        raise MissingError(f"there is no {name}, and to build one, {', '.join(missing)} is missing")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            sys.stderr.write(f"building {name} from its source, once: some minutes\n")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as work:
                build(Path(work)).replace(target)
    return target


def or_skip(find: Callable[[], Path]) -> Path:
    """Return the path of a program, or skip the test if it can't be built here."""
    try:
        return find()
    except MissingError as error:
        pytest.skip(str(error))


def compile_with(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
    """Run a command of a build in a folder.

    Raises:
        BuildError: it failed.
    """
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=MAX_BUILD_S
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed: {(done.stdout + done.stderr).strip()[-2000:]}")
