"""The file in which a running local system says what it consists of; `status`, `down` and other commands read it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
import psutil

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator import files

NAME = "system.json"

PROC = Path("/proc")

MAX_DEVIATION_S = 2.0
"""Without /proc, as on macOS, a creation time is of the wall clock, which may be adjusted: up to this difference, two
times belong to the same process."""


class Process(msgspec.Struct, omit_defaults=True):
    """A process by its ID and creation time: the system can give the ID to another process.

    `created` is in seconds since the machine's start, whose ID is `boot`, so no change of the wall clock matters.
    Without /proc it is in seconds since 1970, and `boot` is empty.
    """

    pid: int
    created: float
    boot: str = ""

    def alive(self) -> bool:
        """Return whether this process still runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return not self.replaced() and psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        return False

    def replaced(self) -> bool:
        """Return whether another process has the ID now."""
        now = find_process(self.pid)
        return now is not None and (now.boot != self.boot or abs(now.created - self.created) >= MAX_DEVIATION_S)


def find_process(pid: int | None) -> Process | None:
    """Return the process that has this ID now, None if there is none."""
    if pid is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            return Process(pid, _created(pid), _boot())
    return None


def _created(pid: int) -> float:
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # there is no such process, or no /proc
        return psutil.Process(pid).create_time()
    # The 22nd field; the second one, the name in parentheses, can contain spaces and parentheses.
    return int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def _boot() -> str:
    path = PROC / "sys" / "kernel" / "random" / "boot_id"
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


class ComponentState(msgspec.Struct, omit_defaults=True):
    """A component: its state as the supervisor names it, and its process."""

    name: str
    state: str
    restarts: int = 0
    process: Process | None = None


class SystemState(msgspec.Struct, omit_defaults=True):
    """The system: its supervisor's process, its addresses, and its components in the order in which they start.

    `org` and `bucket` are InfluxDB's; with a local store they are empty.
    """

    supervisor: Process
    bootstrap_servers: str
    store: str
    page_url: str = ""
    org: str = ""
    bucket: str = ""
    up: bool = False
    components: list[ComponentState] = []


_decode = json_decoder(SystemState)


def write(path: Path, state: SystemState) -> None:
    """Replace the file atomically."""
    files.write_file(path, msgspec.json.format(msgspec.json.encode(state), indent=2))


def read(path: Path) -> SystemState | None:
    """Return the state in the file, None if there is no file because no system was ever started.

    Raises:
        TallystreamError: the file is damaged, or can't be read.
    """
    try:
        return _decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TallystreamError(f"{path} can't be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise TallystreamError(f"{path} is damaged ({error}); delete it if no process of the system runs.") from error


def remaining(state: SystemState) -> list[psutil.Process]:
    """Return the processes that still run of a system whose supervisor was killed.

    Each component is the leader of a session, so its children are found even if the component itself has died. None
    has survived a restart of the machine.
    """
    processes = [one.process for one in state.components if one.process is not None]
    leaders = {one.pid: one for one in processes if one.boot == _boot()}
    found = []
    for running in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            leader = leaders.get(os.getsid(running.pid))
            if leader is None or running.status() == psutil.STATUS_ZOMBIE:
                continue
            if _created(running.pid) >= leader.created - MAX_DEVIATION_S and not leader.replaced():
                found.append(running)
    return found


def kill_remaining(state: SystemState) -> int:
    """Kill the processes that `remaining` returns, and return their number."""
    found = remaining(state)
    for running in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            running.kill()
    psutil.wait_procs(found, timeout=30)
    return len(found)
