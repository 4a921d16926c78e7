"""Processes on loopback: started so that no signal is lost, stopped by process ID, killed when their parent ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def with_deferred_signals(start: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Return `start()`; Python's handlers of SIGINT, SIGTERM and SIGHUP run after it instead of inside it.

    A fork runs callbacks in the parent and in the child (`logging` and `threading` register some), and Python prints
    and discards an exception that a signal handler raises in one of them. If a deferred handler raises, `undo` is
    called with the result. Handlers run only in the main thread; other threads defer nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return start()
    received: list[int] = []
    handlers = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _frame: received.append(number))
        result = start()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    try:
        for received_number in dict.fromkeys(received):
            signal.raise_signal(received_number)
    except BaseException:
        undo(result)
        raise
    return result


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(
    command: Sequence[str], log: Path, env: Mapping[str, str | None] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in a new session, with its output appended to `log`.

    Because of the session, a terminal's Ctrl-C does not reach the process; its parent stops it, in the right order. On
    Linux it is killed when the thread that started it ends, so a killed parent leaves no server behind. `env` is added
    to this process's environment; a value of None removes a variable. `cwd` is the working directory. The handler of a
    signal that arrives meanwhile runs after the start; if it raises, the process is killed.
    """
    with log.open("ab") as out:

        def start() -> subprocess.Popen[bytes]:
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

        return with_deferred_signals(start, undo=_kill)


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def terminate(process: subprocess.Popen[bytes], *, timeout_s: float) -> None:
    """Stop a process with SIGTERM, after `timeout_s` seconds with SIGKILL. Does nothing if it has ended."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)


def tail(log: Path, lines: int = 5) -> str:
    """Return the last lines of a log, for an error message."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]) if log.exists() else ""


class Server(ABC):
    """A server whose output is in `log`; `stop_timeout_s` is the time it has to stop before it is killed."""

    def __init__(self, log: Path, *, stop_timeout_s: float) -> None:
        self.log = log
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start it and return when it answers. Does nothing if it runs."""

    @property
    def pid(self) -> int | None:
        """The process ID, None while it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> None:
        """Stop it. May be called again."""
        if self._process is not None:
            terminate(self._process, timeout_s=self._stop_timeout_s)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would."""
        if self._process is not None:
            _kill(self._process)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
