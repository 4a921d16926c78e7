"""Servers on loopback: processes that are killed when their parent ends, and are stopped by process ID."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

POLL_S = 0.1
MAX_TAIL = 65_536
"""How many bytes of a log are read for its last lines."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_reserved: list[socket.socket] = []


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which nothing listens.

    On Linux no other program gets it from the system while this process runs; a server can listen on it.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = int(probe.getsockname()[1])
    if sys.platform == "linux":
        _reserved.append(probe)
    else:  # a server could not bind it, too
        probe.close()
    return port


def spawn(
    command: Sequence[str], log: Path, env: Mapping[str, str | None] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in a new session, with its output appended to `log`.

    Because of the session, a terminal's Ctrl-C does not reach the process; its parent stops it, in the right order. On
    Linux it is killed when the thread that started it ends, so a killed parent leaves no server behind. `env` is added
    to this process's environment; a value of None removes a variable. `cwd` is the working directory.
    """
    with log.open("ab") as out:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            env={name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None},
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 (one C call, no lock)
        )


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def terminate(process: subprocess.Popen[bytes], *, timeout_s: float) -> None:
    """Stop a process with SIGTERM, after `timeout_s` seconds with SIGKILL. Does nothing if it has ended."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    process.kill()
    process.wait()


def tail(log: Path, lines: int = 5) -> str:
    """Return the last lines of a log, for an error message."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_TAIL))
        return "\n".join(file.read().decode("utf-8", errors="replace").splitlines()[-lines:])


class StartError(TallystreamError):
    """A server did not start, or has ended; the message ends with the last lines of its log."""


class Server(ABC):
    """A server that runs as a process, whose output is appended to `log`.

    What it has started, as Spark's JVM and its workers, belongs to its process group, and ends with it.

    Attributes:
        start_timeout_s: the time until it must be ready.
        stop_timeout_s: the time to stop after SIGTERM, before it is killed.
    """

    start_timeout_s = 60.0
    stop_timeout_s = 30.0

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self._process: subprocess.Popen[bytes] | None = None
        self._group: int | None = None

    @abstractmethod
    def begin(self) -> None:
        """Start the process with `_spawn` and return at once."""

    @abstractmethod
    def ready(self) -> bool:
        """Return whether it answers; takes a second or two at most."""

    def start(self) -> Self:
        """Start it and return when it is ready. Does nothing if it runs.

        Raises:
            StartError: it ended, or was not ready in time.
        """
        if self.pid is None:
            self.begin()
            began = time.monotonic()
            try:
                while not self.became_ready(time.monotonic() - began):
                    time.sleep(POLL_S)
            except BaseException:
                self.kill()
                raise
        return self

    def became_ready(self, waited_s: float) -> bool:
        """Return whether it is ready, `waited_s` seconds after its start.

        Raises:
            StartError: it has ended, or it had to be ready by now.
        """
        self.check()
        if self.ready():
            return True
        if waited_s > self.start_timeout_s:
            raise StartError(f"{self.name}: not up after {waited_s:.0f} s:\n{self.last_output()}")
        return False

    def check(self) -> None:
        """Check that it has not ended by itself.

        Raises:
            StartError: it has.
        """
        code = self.poll()
        if code is not None:
            raise StartError(f"{self.name}: exited with code {code}:\n{self.last_output()}")

    @property
    def pid(self) -> int | None:
        """The process ID, None while it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, None while it runs or before it was started.

        Kills what an ended process has left.
        """
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._kill_group()
        return code

    def stop(self) -> None:
        """Stop it with SIGTERM, then with SIGKILL. May be called again."""
        if self._process is not None:
            terminate(self._process, timeout_s=self.stop_timeout_s)
            self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would, with what it has started."""
        if self._process is not None:
            self._kill_group()
            self._process.wait()

    def last_output(self) -> str:
        """Return the last lines of the log, and its path."""
        return f"{tail(self.log)}\n({self.log})"

    def _spawn(
        self, command: Sequence[str], env: Mapping[str, str | None] | None = None, cwd: Path | None = None
    ) -> None:
        self._process = spawn(command, self.log, env, cwd)
        self._group = self._process.pid

    def _kill_group(self) -> None:
        group, self._group = self._group, None  # once: a later process may get its ID
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
