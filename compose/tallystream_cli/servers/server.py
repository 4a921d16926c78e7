"""A server that is one process of ours: whether it runs, how it is ended, and that a `with` block has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from tallystream_cli.servers.process import end

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


class Server(ABC):
    """One server, which says what it says in `log` and is given `patience_s` seconds to stop."""

    def __init__(self, log: Path, *, patience_s: float) -> None:
        self.log = log
        self._patience_s = patience_s
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
            end(self._process, patience=self._patience_s)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
