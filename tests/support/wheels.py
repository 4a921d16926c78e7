"""Wheels of the four distributions and of all that they need, as the package index of an empty machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from support.commands import uv
from tallystream_cli.servers.jars import cache_dir

ROOT = Path(__file__).parents[2]
LOCKS = [ROOT / "compose" / "images" / f"{name}.lock" for name in ("spark", "page")]
DISTRIBUTIONS = ("reporter", "aggregator", "dashboards", "compose")


def build(kind: str, source: Path, folder: Path) -> None:
    """Build a wheel or sdist into a folder, with this environment's hatchling."""
    uv("build", "-q", f"--{kind}", "--no-build-isolation", "--python", sys.executable, source, "-o", folder)


def build_distributions(folder: Path) -> Path:
    """Build the wheels of the four distributions into a folder, and return it."""
    for name in DISTRIBUTIONS:
        build("wheel", ROOT / name, folder)
    return folder


def download_dependencies() -> Path:
    """Return the folder in the cache with wheels of all that `tallystream-cli[spark]` needs, in the locked versions.

    If it is missing, the packages are downloaded, and PySpark's wheel is built, which takes minutes.
    """
    content = b"".join(lock.read_bytes() for lock in LOCKS)
    digest = hashlib.sha256(content + sys.version.encode()).hexdigest()[:8]
    folder = cache_dir() / "wheels" / digest
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            options = ["--no-deps", "--no-build-isolation", "--require-hashes", "-w", str(unfinished)]
            options += [word for lock in LOCKS for word in ("-r", str(lock))]
            done = subprocess.run(
                [sys.executable, "-m", "pip", "wheel", "-q", *options],
                env={**os.environ, "DIST_EXTRA_CONFIG": str(LOCKS[0].with_name("wheels.cfg"))},
                capture_output=True,
                text=True,
                timeout=1200,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            unfinished.rename(folder)
    return folder
