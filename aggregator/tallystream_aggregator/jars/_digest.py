"""The SHA-256 of cached files: computed at the first use in a process, and again when the file has changed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_computed: dict[Path, tuple[tuple[int, int, int, int], str]] = {}


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 of a file in hexadecimal, None where there is none.

    Raises:
        OSError: it can't be read.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    known = _computed.get(path)
    if known is None or known[0] != state:
        with path.open("rb") as file:
            known = _computed[path] = (state, hashlib.file_digest(file, "sha256").hexdigest())
    return known[1]
