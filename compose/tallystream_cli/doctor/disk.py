"""Checks of files and folders on this machine: who may read and write them, and the free space."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

from tallystream_cli.doctor.findings import failed, ok, warning

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_cli.doctor.findings import Finding

FEW_BYTES, TOO_FEW_BYTES = 2 * 1024**3, 200 * 1024**2
"""The free space from which a warning is due, and that below which a write may fail soon."""


def existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    path = path.absolute()
    return next(one for one in (path, *path.parents) if os.path.exists(one))  # noqa: PTH110 (never raises)


def writable(path: Path) -> bool:
    """Return whether this user may write a file or folder, or create it."""
    found = existing(path)
    return (found == path.absolute() or found.is_dir()) and os.access(found, os.W_OK)


def free_space(check: str, path: Path) -> Finding:
    """Check the free space of the disk that has, or would have, a file or folder."""
    return space(f"{check}: disk", str(path), shutil.disk_usage(existing(path)).free)


def space(check: str, path: str, free: int) -> Finding:
    """Check a number of free bytes."""
    if free < FEW_BYTES:
        remedy = "free space on this disk, or move the data to a larger one"
        return (failed if free < TOO_FEW_BYTES else warning)(check, f"{free / 1e6:,.0f} MB free for {path}", remedy)
    return ok(check, f"{free / 1e9:,.1f} GB free")


def private(check: str, path: Path, mode: int) -> Finding | None:
    """Return a warning if other users have permissions on a file or folder, else None."""
    others = stat.S_IMODE(mode) & 0o077
    if not others:
        return None
    return warning(check, f"other users have permissions on {path} ({stat.S_IMODE(mode):04o})", f"chmod go= {path}")
