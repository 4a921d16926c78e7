"""The consumer applications as processes: started, told to hold, killed, stopped; and their journals read."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_cli.demo import journal
from tallystream_cli.servers.process import spawn, tail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_WAIT_S = 30.0


class ConsumerError(TallystreamError):
    """An application ended that should run, or did not end when it was told to."""


class AppProcess:
    """One instance ID: its process, started any number of times, and its journal, which is that of all of them."""

    def __init__(self, instance: str, folder: Path, options: Mapping[str, str]) -> None:
        self.instance = instance
        self.journal = folder / f"{instance}.journal"
        self.hold_file = folder / f"{instance}.hold"
        self._log = folder / f"{instance}.log"
        self._options = dict(options)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it must not be running."""
        options = {
            **self._options,
            "--instance": self.instance,
            "--journal": str(self.journal),
            "--hold-after-report": str(self.hold_file),
        }
        command = [sys.executable, "-m", "tallystream_cli.demo.app"]
        self._process = spawn([*command, *(text for pair in options.items() for text in pair)], self._log)

    def check(self) -> None:
        """Look whether it still runs.

        Raises:
            ConsumerError: it was started and has ended by itself; the message ends with what it said last.
        """
        code = None if self._process is None else self._process.poll()
        if code is not None:
            raise ConsumerError(
                f"{self.instance}: it ended with code {code}, and its last output was:\n{tail(self._log)}"
            )

    def batches(self) -> list[journal.Batch]:
        """Return what its journal has so far.

        Raises:
            JournalError: it contradicts itself.
        """
        return journal.parse(self.journal.read_bytes()) if self.journal.exists() else []

    def hold(self) -> None:
        """Let it stop between its next report and the commit."""
        self.hold_file.touch()

    def kill(self) -> None:
        """End it with SIGKILL, and let the next start run freely."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.hold_file.unlink(missing_ok=True)

    def stop(self) -> None:
        """End it in order.

        Raises:
            ConsumerError: it failed, or was not gone in time and had to be killed.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(MAX_WAIT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise ConsumerError(f"{self.instance}: it did not end within {MAX_WAIT_S:g} s of SIGTERM.") from error
        if code:
            raise ConsumerError(
                f"{self.instance}: it ended with code {code}, and its last output was:\n{tail(self._log)}"
            )
