"""Wheels of all that the four distributions need, as the package index of an empty machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tallystream_cli.servers.jars import cache_dir

ROOT = Path(__file__).parents[2]
LOCKS = [ROOT / "compose" / "images" / f"{name}.lock" for name in ("spark", "page", "build")]


def download_dependencies() -> Path:
    """Return the folder in the cache with wheels of all that `tallystream-cli[spark]` and its build need.

    They have the locked versions. If the folder is missing, they are downloaded, and PySpark's is built: minutes.
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
