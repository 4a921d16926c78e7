"""Files and folders that hold data: their owner alone may read them, whatever the umask is."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FOLDER, FILE = 0o700, 0o600


def make_folder(path: Path) -> None:
    """Make a folder if it is missing; one that is there keeps its permissions.

    Raises:
        OSError: it can't be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(FOLDER, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file if it is missing; one that is there is left as it is.

    Raises:
        OSError: it can't be made.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE))


def restrict(path: Path, mode: int) -> None:
    """Take the permissions that `mode` lacks from what is there; what is not there, or another user's, is left alone.

    Raises:
        OSError: the system refuses for another reason.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        now = path.stat().st_mode & 0o7777
        if now & ~mode:
            path.chmod(now & mode)


def write_file(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, and its folder where that is missing.

    Raises:
        OSError: it can't be written.
    """
    make_folder(path.parent)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # an earlier attempt's, with its permissions
    make_file(new)
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
