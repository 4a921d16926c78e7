"""Where Spark and its Python processes meet: sockets in a folder that only this user may enter.

Over TCP, which is Spark's default, the JVM writes twice before it reads, and the second half of each task's input waits
for 40 ms: Nagle's algorithm on one side, the delayed acknowledgement on the other (docs/performance.md).
"""

from __future__ import annotations

import functools
import tempfile

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"

MOST_BYTES = 60
"""How long the folder's path may be: Spark's names have 42 bytes, and a socket's path 103 at most on some systems."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tallystream-")  # it is gone when this process ends


def settings() -> dict[str, str]:
    """Return what Spark is told, where all of its processes are on this machine."""
    folder = _folder().name
    return {ENABLED: "true", FOLDER: folder} if len(folder.encode()) <= MOST_BYTES else {ENABLED: "false"}
