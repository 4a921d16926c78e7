"""What the supervisor runs: the protocol of a component, and a command of `tallystream` as one."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Protocol

from tallystream_cli.servers.process import spawn, tail, terminate

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path


STOP_TIMEOUT_S = 30.0
"""The time for a command to stop."""


class Component(Protocol):
    """A process that the supervisor starts, watches and stops. `start_timeout_s` limits the time until it is ready."""

    name: str
    start_timeout_s: float

    @property
    def pid(self) -> int | None:
        """The process ID, None while it is not running."""

    def begin(self) -> None:
        """Start the process and return at once."""

    def ready(self) -> bool:
        """Return whether it is ready; takes a second at most."""

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, None while it runs."""

    def stop(self) -> None:
        """Stop it with SIGTERM, then with SIGKILL, children included. May be called again."""

    def last_output(self) -> str:
        """Return the last lines of its log, for an error message."""


class Command:
    """A command that creates the file `ready_file` when it is ready; its output is appended to `log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        ready_file: Path,
        env: Mapping[str, str | None] | None = None,
        start_timeout_s: float = 300.0,  # a start takes half a minute, but minutes on a busy machine
    ) -> None:
        self.name = name
        self.start_timeout_s = start_timeout_s
        self._command = list(command)
        self._log = log
        self._ready_file = ready_file
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process ID, None while it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def begin(self) -> None:
        """Start the process and return at once."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        self._process = spawn(self._command, self._log, self._env)

    def ready(self) -> bool:
        """Return whether the ready file exists."""
        return self._ready_file.exists()

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, None while it runs. Kills the children of an ended process."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._kill_group()
        return code

    def stop(self) -> None:
        """Stop the process with SIGTERM, then with SIGKILL, and kill the rest of its process group."""
        if self._process is not None:
            terminate(self._process, timeout_s=STOP_TIMEOUT_S)
            self._kill_group()

    def last_output(self) -> str:
        """Return the last lines of the log, and its path."""
        return f"{tail(self._log)}\n({self._log})"

    def _kill_group(self) -> None:
        # Spark's JVM and its Python workers belong to the command's process group. They end by themselves soon after
        # the command, but must have ended before it is started again.
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
