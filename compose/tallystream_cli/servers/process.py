"""A server's process: it dies with its parent, and is ended by its own process ID."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from tallystream_cli.servers.signals import undisturbed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(command: Sequence[str], log: Path, env: Mapping[str, str | None] | None = None) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, its output appended to `log`.

    A session of its own keeps a terminal's Ctrl-C away from it: whoever started it ends it, in the right order. On
    Linux it is killed when the thread that started it ends, so that a killed parent leaves no server behind. `env` is
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
