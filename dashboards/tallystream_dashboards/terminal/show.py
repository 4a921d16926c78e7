"""Read the store and show a table in a terminal, once or until a signal."""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream.errors import ConfigError
from tallystream_aggregator.shutdown import stop_on_signals
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_store
from tallystream_dashboards.exit_codes import GOOD, UNKNOWN
from tallystream_dashboards.printable import printable, printable_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import TextIO

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_aggregator.sinks.stores import StoreSettings

RETRY_S = 0.5
"""Seconds between two reads while there is nothing to show yet."""

MAX_NAMES = 20
"""How many names an error lists."""

_CLEAR = "\x1b[H\x1b[2J"


class Shown(NamedTuple):
    """What is shown: JSON objects and the same as text, a sentence about what is wrong (or ""), and the exit code."""

    objects: Sequence[dict[str, Any]]
    text: str
    problem: str
    code: int

    @classmethod
    def nothing(cls, problem: str) -> Shown:
        """Return that there is nothing to show, and why."""
        return cls((), "", problem, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings(ABC):
    """Settings of a command that shows a table from the store.

    `at_ms` is the moment to show, epoch ms; None: now. `wait_s` is how long to wait for something to show.

    Raises:
        ConfigError: a number is out of its bounds, or both `watch` and `at_ms` are set.
    """

    store: StoreSettings
    watch: bool = False
    json: bool = False
    at_ms: int | None = None
    every_s: float = 2.0
    wait_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0.5 <= self.every_s <= 3600:
            raise ConfigError("--every", self.every_s, "give seconds from 0.5 to 3600")
        if not 0 <= self.wait_s <= 86_400:
            raise ConfigError("--wait", self.wait_s, "give seconds from 0 to 86400")
        if self.watch and self.at_ms is not None:
            raise ConfigError("--at", self.at_ms, "leave --watch out: the past does not change")

    @abstractmethod
    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return what the command shows of a moment, epoch ms.

        Raises:
            SinkUnavailableError: the store does not answer.
        """


def show(settings: TableSettings, out: TextIO | None = None, *, clock: Callable[[], float] = time.time) -> int:
    """Write what a command shows to `out` (standard output), and return its exit code.

    With `watch`, do it again every `every_s` seconds, until SIGTERM or Ctrl-C. With `json` the output is for programs,
    so the sentence goes to standard error. If the store can't be read, the sentence says so. With
    `wait_s`, it is read again until there is something to show, for so many seconds at most.
    Must be called in the main thread.

    Raises:
        ConfigError: the store's settings can't work.
    """
    out = out or sys.stdout
    deadline_s = clock() + settings.wait_s
    with stop_on_signals() as stop:
        while True:
            at_ms = settings.at_ms if settings.at_ms is not None else round(clock() * 1000)
            objects, text, problem, code = _read(settings, at_ms)
            if code != GOOD and clock() < deadline_s and not stop.wait(RETRY_S):
                continue
            out.write(_CLEAR if settings.watch and not settings.json and out.isatty() else "")
            out.write(json_lines(objects) if settings.json else text)
            (sys.stderr if settings.json else out).write(printable(problem) + "\n" if problem else "")
            out.flush()
            if not settings.watch or stop.wait(settings.every_s):
                return code


def _read(settings: TableSettings, at_ms: int) -> Shown:
    try:
        with closing(open_store(settings.store)) as reader:
            return settings.shown(reader, at_ms)
    except SinkUnavailableError as error:
        return Shown.nothing(f"The store can't be read: {error}")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return a sentence with the names that are like a wrong one, or with all of them."""
    alike = get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    if alike:
        return f"Did you mean {' or '.join(alike)}?"
    return f"There are: {', '.join(sorted(known)[:MAX_NAMES])}." if known else "There is none yet."


def json_lines(objects: Iterable[dict[str, Any]]) -> str:
    """Return each object as JSON in a line of its own."""
    return "".join(printable_json(json.dumps(one, ensure_ascii=False)) + "\n" for one in objects)


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
