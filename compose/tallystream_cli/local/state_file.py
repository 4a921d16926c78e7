"""The files in which a running local system says that it runs and what it consists of, and its processes."""

from __future__ import annotations

import contextlib
import fcntl
import time
from typing import IO, TYPE_CHECKING

import msgspec
import psutil

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator import files

if TYPE_CHECKING:
    from pathlib import Path

NAME, LOCK = "system.json", "lock"

FOLDER_ENV = "TALLYSTREAM_SYSTEM"
"""The data folder, in the environment of each process that the system has started, so that it is found again."""

LOCK_TRIES, LOCK_PAUSE_S = 5, 0.05


class ComponentState(msgspec.Struct, omit_defaults=True):
    """A component: its state as the supervisor names it, and its process ID while it runs."""

    name: str
    state: str
    restarts: int = 0
    pid: int | None = None


class SystemState(msgspec.Struct, omit_defaults=True):
    """The system: its supervisor's process, its addresses, and its components in the order in which they start.

    `started` is the time at which the process with the ID `supervisor` began, as psutil has it: another process may
    have the ID by now, or have it outside of a container. `org` and `bucket` are InfluxDB's; with a local store they
    are empty.
    """

    supervisor: int
    started: float
    bootstrap_servers: str
    store: str
    page_url: str = ""
    api_url: str = ""
    org: str = ""
    bucket: str = ""
    up: bool = False
    components: list[ComponentState] = []


_decode = json_decoder(SystemState)


def write(folder: Path, state: SystemState) -> None:
    """Replace the file in a data folder atomically."""
    files.write_file(folder / NAME, msgspec.json.format(msgspec.json.encode(state), indent=2))


def read(folder: Path) -> SystemState | None:
    """Return the state in the file of a data folder, None if there is no file.

    Raises:
        TallystreamError: the file is damaged, or can't be read.
    """
    path = folder / NAME
    try:
        return _decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TallystreamError(f"{path} can't be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise TallystreamError(f"{path} is damaged ({error}); stop the system's processes and delete it.") from error


def lock(folder: Path) -> IO[bytes]:
    """Return the lock of a data folder, which its system has until the file is closed or the process ends.

    Raises:
        BlockingIOError: another system has it.
        OSError: the file can't be written.
    """
    file = (folder / LOCK).open("wb")
    for tries_left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not tries_left:
                file.close()
                raise
            time.sleep(LOCK_PAUSE_S)  # `running` has it for a moment
        else:
            break
    return file


def running(folder: Path) -> SystemState | None:
    """Return the state of the system that runs in a data folder, None if none does.

    Raises:
        TallystreamError: its file is damaged, or can't be read.
    """
    path = folder / LOCK
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TallystreamError(f"{path} can't be read: {error.strerror}.") from error
    return None


def kill_remaining(folder: Path) -> int:
    """Kill the processes of a system whose supervisor was killed, and return their number."""
    found = remaining(folder)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=30)
    return len(found)


def remaining(folder: Path) -> list[psutil.Process]:
    """Return the running processes that a system in this data folder has started, and what these have started."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            started = process.environ().get(FOLDER_ENV) == str(folder.resolve())
            if started and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
