"""Create files and folders that hold data. Only their owner may read them, whatever the umask is."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FOLDER, FILE = 0o700, 0o600


def make_folder(path: Path) -> None:
    """Create a folder if it is missing. An existing folder keeps its permissions.

    Raises:
        OSError: it can't be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(FOLDER, exist_ok=True)


def make_file(path: Path) -> None:
    """Create an empty file if it is missing. An existing file is not changed.

    Raises:
        OSError: it can't be created.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE))


def restrict(path: Path, mode: int) -> None:
    """Remove the permissions of a file or folder that `mode` lacks.

    Do nothing if the path does not exist, or if this user may not change it.

    Raises:
        OSError: the system refuses for another reason.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        now = path.stat().st_mode & 0o7777
        if now & ~mode:
            path.chmod(now & mode)


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, and create its folder if that is missing.

    Raises:
        OSError: it can't be written.
    """
    make_folder(path.parent)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # a failed attempt's, whose permissions may be wider
    make_file(new)
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
