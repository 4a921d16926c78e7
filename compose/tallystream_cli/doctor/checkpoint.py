"""Checks of the folder of the aggregator's checkpoint.

Whether the checkpoint is usable is not checked: a damaged or missing one is made again from `metrics-table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_cli.doctor import disk
from tallystream_cli.doctor.findings import failed, ok

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tallystream_cli.doctor.findings import Finding

CHECK = "checkpoint"


def check_checkpoint(path: Path) -> Iterator[Finding]:
    """Check the folder of a checkpoint: its permissions, and the free disk."""
    if not disk.writable(path) or not disk.writable(path.absolute().parent):
        yield failed(f"{CHECK}: folder", f"this user may not write {path} or beside it", "allow it, or run as its user")
    if (path / "offsets").is_dir():
        yield ok(CHECK, str(path))
        if (finding := disk.private(f"{CHECK}: folder", path, path.stat().st_mode)) is not None:
            yield finding
    else:
        yield ok(CHECK, f"{path} has no state yet; the aggregator makes it from metrics-table")
    yield disk.free_space(CHECK, path)
