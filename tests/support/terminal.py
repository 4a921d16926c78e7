"""A pseudo-terminal for commands that draw in place."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

from rich.cells import cell_len

from support.commands import command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
"""The sequences that switch to the alternate screen and back, and show the cursor."""
_FIRST_LINE, _LINE = "\x1b[1;1H", re.compile(r"\x1b\[\d+;1H")
_RUN_IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""A program that makes its standard input its terminal, which then turns Ctrl-C into a signal, and becomes another."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TerminalProcess:
    """`tallystream` in a pseudo-terminal of a size, as in a shell. `text` is what it has written."""

    def __init__(
        self, arguments: Sequence[str], *, columns: int = 80, lines: int = 24, folder: Path | None = None
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        self._mode = termios.tcgetattr(slave)
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", _RUN_IN_TERMINAL, *command(*arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm-256color"},
            cwd=folder,
            start_new_session=True,
        )
        self._slave = slave
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        os.close(self._slave)
        os.close(self._master)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def read_until(self, found: str, *, timeout: float = 60.0) -> None:
        """Read the output until it has a text."""
        deadline = time.monotonic() + timeout
        while found not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, f"{found!r} did not come in {timeout:g} s: {self.text}"
            self._read()

    def wait(self, timeout: float = 60.0) -> int:
        """Return the exit code of the process, after reading all of its output."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end in {timeout:g} s: {self.text}"
            self._read()
        self._read()
        return self.process.wait()

    def restored(self) -> bool:
        """Return whether the terminal is as before: its mode, the first screen, and the cursor."""
        left = self.text.rpartition(ENTER)[2]
        return termios.tcgetattr(self._slave) == self._mode and LEAVE in left and SHOW_CURSOR in left

    def suspends(self) -> bool:
        """Return whether Ctrl-Z is a signal."""
        return bool(termios.tcgetattr(self._slave)[6][termios.VSUSP] != b"\x00")

    def screens(self) -> list[list[str]]:
        """Return the lines of each screen that was drawn, without colours."""
        drawn = self.text.partition(ENTER)[2].partition(LEAVE)[0].split(_FIRST_LINE)[1:]
        return [[_CONTROL.sub("", line) for line in _LINE.split(one)] for one in drawn]

    def _read(self) -> None:
        timeout = 0.1
        while select.select([self._master], [], [], timeout)[0]:
            self.text += self._decoder.decode(os.read(self._master, 65536))
            timeout = 0


def widths(lines: Sequence[str]) -> list[int]:
    """Return the number of cells of each line."""
    return [cell_len(line) for line in lines]
