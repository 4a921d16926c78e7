"""What runs, for other processes to read: the file from which `status` and `down` know the system."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec
import psutil

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator import files

if TYPE_CHECKING:
    from pathlib import Path


SAME_S = 2.0
"""The system reckons creation from the wall clock, which may be set: two times this near are of one process."""


class Process(msgspec.Struct, omit_defaults=True):
    """A process, by its ID and the time it was created, in seconds since 1970: an ID alone may be somebody else's."""

    pid: int
    created: float

    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < SAME_S
            return same and process.status() != psutil.STATUS_ZOMBIE
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
    """The system: the process that supervises it, its addresses, its components in starting order.

    `org` and `bucket` are InfluxDB's, empty with a local store.
    """

    supervisor: Process
    bootstrap_servers: str
    store: str
    page_url: str = ""
    org: str = ""
    bucket: str = ""
    up: bool = False
    components: list[ComponentRecord] = []


_decode = json_decoder(SystemRecord)


def left_over(record: SystemRecord) -> list[psutil.Process]:
    """Return what still runs of a system whose supervisor was killed: its components and what these started.

    Each component led a session, so its children are known by that even when it has died itself.
    """
    sessions = {one.process.pid: one.process for one in record.components if one.process is not None}
    found = []
    for running in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            led = sessions.get(os.getsid(running.pid))
            if led is None or running.create_time() < led.created - SAME_S or running.status() == psutil.STATUS_ZOMBIE:
                continue
            if not _reused(led):
                found.append(running)
    return found


def _reused(led: Process) -> bool:
    """Tell whether the ID has gone to a younger process."""
    try:
        return abs(psutil.Process(led.pid).create_time() - led.created) >= SAME_S
    except psutil.NoSuchProcess:
        return False


def end_left_over(record: SystemRecord) -> int:
    """End what `left_over` finds with SIGKILL, and return how many components and children that were."""
    found = left_over(record)
    for running in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            running.kill()
    psutil.wait_procs(found, timeout=30)
    return len(found)


def write(path: Path, record: SystemRecord) -> None:
    """Replace the record in one step."""
    files.write_file(path, msgspec.json.format(msgspec.json.encode(record), indent=2))


def read(path: Path) -> SystemRecord | None:
    """Return the record, None when there is none: nothing was ever started here.

    Raises:
        TallystreamError: the file is damaged.
    """
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise TallystreamError(f"record: {path} is damaged ({error}); delete it if nothing of it runs.") from error
