"""What runs, for other processes to read: the file from which `status` and `down` know the system."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec
import psutil

if TYPE_CHECKING:
    from pathlib import Path


class Process(msgspec.Struct, omit_defaults=True):
    """A process, by its ID and the time it was created, in seconds since 1970: an ID alone may be somebody else's."""

    pid: int
    created: float

    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            return process.create_time() == self.created and process.status() != psutil.STATUS_ZOMBIE
        return False


def process(pid: int | None) -> Process | None:
    """Return the process that has this ID now, None when there is none."""
    if pid is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            return Process(pid, psutil.Process(pid).create_time())
    return None


class ComponentRecord(msgspec.Struct, omit_defaults=True):
    """One component: its state in the supervisor's words, and its process."""

    name: str
    state: str
    restarts: int = 0
    process: Process | None = None


class SystemRecord(msgspec.Struct, omit_defaults=True):
    """The system: the process that supervises it, its addresses, its components in starting order."""

    supervisor: Process
    bootstrap_servers: str
    store: str
    page_url: str = ""
    up: bool = False
    components: list[ComponentRecord] = []


def write(path: Path, record: SystemRecord) -> None:
    """Replace the record in one step."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2))
    os.replace(new, path)  # noqa: PTH105 (the same)


def read(path: Path) -> SystemRecord | None:
    """Return the record, None when there is none: nothing was ever started here."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SystemRecord)
    except FileNotFoundError:
        return None
