"""Keys from the terminal, one at a time, without Enter."""

from __future__ import annotations

import os
import select
import termios
import tty
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from typing import TextIO


class Keyboard:
    """A context manager that reads keys of a terminal, and restores its mode at the end.

    Ctrl-C is still a signal. Ctrl-Z is none: a suspended command would leave its screen behind. A stream that is not a
    terminal has no keys.
    """

    def __init__(self, stream: TextIO) -> None:
        self._number = stream.fileno() if stream.isatty() else None
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._number is not None:
            self._before = termios.tcgetattr(self._number)
            tty.setcbreak(self._number)
            mode = termios.tcgetattr(self._number)
            mode[6][termios.VSUSP] = os.fpathconf(self._number, "PC_VDISABLE")
            termios.tcsetattr(self._number, termios.TCSADRAIN, mode)
        return self

    def __exit__(self, *_: object) -> None:
        if self._number is not None:
            termios.tcsetattr(self._number, termios.TCSADRAIN, self._before)

    @property
    def present(self) -> bool:
        """Whether there are keys."""
        return self._number is not None

    def keys(self, timeout: float) -> str:
        """Return the keys that were pressed, after at most `timeout` seconds; empty if none was.

        Raises:
            OSError: the terminal is gone.
        """
        if self._number is None:
            select.select([], [], [], timeout)
            return ""
        ready, _, _ = select.select([self._number], [], [], timeout)
        return os.read(self._number, 1024).decode(errors="replace") if ready else ""
