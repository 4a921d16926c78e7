"""A component: one server or one of our own commands, as the supervisor sees it."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Protocol

from tallystream_cli.servers.process import end, spawn, tail

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tallystream_cli.servers.broker import KafkaBroker


STOP_S = 90.0
"""How long a command may take to stop: Spark finishes its batch, which is given a minute."""


class Component(Protocol):
    """What the supervisor starts, watches and stops. `max_wait_s`: how long it may take to be ready."""

    name: str
    max_wait_s: float

    @property
    def pid(self) -> int | None:
        """The process ID, None while it is not running."""

    def begin(self) -> None:
        """Start the process and return at once."""

    def ready(self) -> bool:
        """Tell whether it does its work; takes a second at most."""

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended, None while it runs."""

    def stop(self) -> None:
        """Stop in order, then with SIGKILL; nothing of it is left. Safe to call again."""

    def last_output(self) -> str:
        """Return the last lines that it logged, for an error message."""


class Command:
    """A command that creates its `ready` file when it does its work; its output is appended to `log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        ready: Path,
        env: Mapping[str, str | None] | None = None,
        max_wait_s: float = 300.0,  # a start takes half a minute; on a machine with much else to do, minutes
    ) -> None:
        self.name = name
        self.max_wait_s = max_wait_s
        self._command = list(command)
        self._log = log
        self._ready = ready
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process ID, None while it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def begin(self) -> None:
        """Start the process and return at once."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._ready.unlink(missing_ok=True)
        self._process = spawn(self._command, self._log, self._env)

    def ready(self) -> bool:
        """Tell whether the ready file is there."""
        return self._ready.exists()

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended, None while it runs; what it left behind is killed."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._kill_group()
        return code

    def stop(self) -> None:
        """Stop in order, then with SIGKILL: the process and everything in its session's group."""
        if self._process is not None:
            end(self._process, patience=STOP_S)
            self._kill_group()

    def last_output(self) -> str:
        """Return the last lines that it logged, and where."""
        return f"{tail(self._log)}\n({self._log})"

    def _kill_group(self) -> None:
        # Spark's JVM and its Python workers are of the group that the command leads; they end by themselves soon after
        # it, but a successor must not meet them.
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


class Broker:
    """The Kafka broker as a component."""

    name = "broker"
    max_wait_s = 90.0

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    @property
    def pid(self) -> int | None:
        """The process ID, None while it is not running."""
        return self._broker.pid

    def begin(self) -> None:
        """Start the broker and return at once."""
        self._broker.begin()

    def ready(self) -> bool:
        """Tell whether the broker answers."""
        return self._broker.answers()

    def poll(self) -> int | None:
        """Return the exit code of a broker that has ended, None while it runs."""
        return self._broker.poll()

    def stop(self) -> None:
        """Stop the broker."""
        self._broker.stop()

    def last_output(self) -> str:
        """Return the last lines that it logged, and where."""
        return f"{tail(self._broker.log)}\n({self._broker.log})"
