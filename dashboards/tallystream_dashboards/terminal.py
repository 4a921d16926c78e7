"""Show a table in a terminal, once or until a signal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.shutdown import stop_on_signals
from tallystream_aggregator.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import TextIO

_CLEAR = "\x1b[H\x1b[2J"


class Shown(NamedTuple):
    """What is shown: the text, a sentence about what is wrong (empty if nothing is), and the exit code."""

    text: str
    problem: str
    code: int


def show(read: Callable[[], Shown], *, watch: bool, json: bool, every_s: float, out: TextIO | None = None) -> int:
    """Write what `read` returns to `out` (standard output), and return its exit code.

    With `watch`, do it again every `every_s` seconds, until SIGTERM or Ctrl-C. With `json` the output is for programs,
    so the sentence goes to standard error. Must be called in the main thread.
    """
    out = out or sys.stdout
    with stop_on_signals() as stop:
        while True:
            text, problem, code = read()
            out.write(_CLEAR if watch and not json and out.isatty() else "")
            out.write(text)
            (sys.stderr if json else out).write(printable(problem) + "\n" if problem else "")
            out.flush()
            if not watch or stop.wait(every_s):
                return code


def aligned(rows: Sequence[tuple[str, ...]], *, right: Collection[int]) -> str:
    """Return rows as a table, the first one as its head. The columns `right` are aligned to the right.

    The last column of a row is never padded. Characters that are not printable are escaped.
    """
    rows = [tuple(printable(cell) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.rjust(width) if column in right and column < len(row) - 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines) + "\n"
