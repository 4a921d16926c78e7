"""A server's process on loopback: started with signals held back, ended by its own process ID, dies with its parent."""

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


def undisturbed(start: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Return what `start` returns; Python's handlers of SIGINT, SIGTERM and SIGHUP run after it, not inside it.

    Where one of them raises then, `undo` is called with what has been started. A fork runs callbacks, in the parent
    and in the child, and Python prints and swallows what a handler raises in one of them (`logging` and `threading`
    have some). A child that was sent the signal too, as by a terminal to all of a process group, goes on to be what it
    was to be: the process that started it ends it. Handlers run in the main thread alone: elsewhere nothing waits.
    """
    if threading.current_thread() is not threading.main_thread():
        return start()
    came: list[int] = []
    ours = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}
    try:
        for number in ours:
            signal.signal(number, lambda number, _frame: came.append(number))
        started = start()
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    try:
        for signalled in dict.fromkeys(came):
            signal.raise_signal(signalled)
    except BaseException:
        undo(started)
        raise
    return started


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(command: Sequence[str], log: Path, env: Mapping[str, str | None] | None = None) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, its output appended to `log`.

    A session of its own keeps a terminal's Ctrl-C away from it: its parent ends it, in the right order. On Linux
    it is killed when the thread that started it ends, so that a killed parent leaves no server behind. `env` is
    added to this process's environment; a variable that is None in it is taken away. A signal that comes meanwhile is
    handled when the process is there; it is killed if that raises.
    """
    with log.open("ab") as out:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None},
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 (one C call, no lock)
            )

        return undisturbed(start, undo=_kill)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def end(process: subprocess.Popen[bytes], *, patience: float) -> None:
    """End a process: SIGTERM, then after `patience` seconds SIGKILL. Does nothing when it has ended."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        _kill(process)


def tail(log: Path, lines: int = 5) -> str:
    """Return the last lines of a log, for an error message."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]) if log.exists() else ""


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Server(ABC):
    """One server, which says what it says in `log` and is given `max_wait_s` seconds to stop."""

    def __init__(self, log: Path, *, max_wait_s: float) -> None:
        self.log = log
        self._max_wait_s = max_wait_s
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start it and return when it answers; do nothing where it runs."""

    @property
    def pid(self) -> int | None:
        """The process ID, None while it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def poll(self) -> int | None:
        """Return the exit code of the process that has ended, None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> None:
        """Stop in order; safe to call again."""
        if self._process is not None:
            end(self._process, patience=self._max_wait_s)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
