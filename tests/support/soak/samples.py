"""What the parts of a system take at a moment: memory, descriptors, threads, and bytes on disk."""

from __future__ import annotations

import fnmatch
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from support.processes import tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_cli.servers.process import Server

MIB = 1 << 20


def sample(parts: Iterable[Server], folder: Path) -> dict[str, float]:
    """Return each figure by the title of its curve. A part that does not run has none.

    Memory is what a process has for itself: another program changes how much of the rest is shared.
    """
    found: dict[str, float] = {}
    for part in parts:
        with suppress(psutil.Error):
            processes = tree(part.pid) if part.pid else []
            if processes:
                found[f"{part.name}: memory, MB"] = sum(one.memory_full_info().uss for one in processes) / MIB
                found[f"{part.name}: descriptors"] = sum(one.num_fds() for one in processes)
                found[f"{part.name}: threads"] = sum(one.num_threads() for one in processes)
    topics = {f"topic {path.name[:-2]}, MB": _mib(path, "*.log") for path in folder.glob("broker/data/metrics*")}
    return found | {f"{name}, MB": _mib(folder / name) for name in ("checkpoint", "store")} | topics


def _mib(folder: Path, pattern: str = "*") -> float:
    """Return the size of the files in a folder. Each of them, and each folder, may be deleted at any time."""
    size = 0
    for inner, _, names in os.walk(folder):
        for name in fnmatch.filter(names, pattern):
            with suppress(FileNotFoundError):
                size += (Path(inner) / name).stat().st_size
    return size / MIB
