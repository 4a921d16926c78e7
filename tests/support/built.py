"""Programs that no package registry has: each is built once from its source, into the user's cache."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import TallystreamError
from tallystream_cli.servers.jars import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MAX_BUILD_S = 3600


class BuildError(TallystreamError):
    """The build failed; the message ends with the compiler's last output."""


class Found(NamedTuple):
    """The path of a program, or None and the reason why there is none."""

    path: Path | None
    reason: str


class Program(NamedTuple):
    """A program and its path in the cache.

    `tools` are the programs that a build needs, or one of several; `build` builds in a folder, and returns the binary.
    """

    name: str
    path: Path
    tools: Sequence[Sequence[str]]
    build: Callable[[Path], Path]


def find_or_build(program: Program) -> Found:
    """Return a program from the cache. If it is missing or was changed, build it, which takes minutes.

    A file lock makes one process build while others wait.

    Raises:
        BuildError: the build failed.
    """
    name, target, tools, build = program
    if is_intact(target):
        return Found(target, "")
    if missing := [" or ".join(names) for names in tools if not any(map(shutil.which, names))]:
        return Found(None, f"there is no {name}, and to build one, {', '.join(missing)} is missing")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_intact(target):
            sys.stderr.write(f"building {name} from its source, once: some minutes\n")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as work:
                built = build(Path(work))
                _digest_path(target).unlink(missing_ok=True)
                built.replace(target)
            _digest_path(target).write_text(f"{sha256_of(target)}\n", encoding="ascii")
    return Found(target, "")


def is_intact(target: Path) -> bool:
    """Return whether the binary exists and has the digest that was recorded when it was built."""
    digest = _digest_path(target)
    return target.exists() and digest.exists() and digest.read_text(encoding="ascii").strip() == sha256_of(target)


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


def _digest_path(target: Path) -> Path:
    return target.with_name(target.name + ".sha256")
