"""The progress display: bars on a terminal, plain lines elsewhere; and how long each step took."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

PLAIN_EVERY_S = 5.0


class Display:
    """Shows what happens; `took` has the seconds of each step that is over, in order. A context manager.

    Bars count how many of `events` each of `bars` has. `clock` is in seconds and never goes back.
    It writes to `to`, or to standard output.
    """

    def __init__(
        self,
        events: int,
        bars: tuple[str, ...],
        *,
        console: Console | None = None,
        to: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console(highlight=False, file=to, width=None if (to or sys.stdout).isatty() else 120)
        self.took: list[tuple[str, float]] = []
        self._clock = clock
        self._counts = dict.fromkeys(bars, 0)
        self._printed: dict[str, int] = {}
        self._due = clock() + PLAIN_EVERY_S
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._tasks = {bar: self._progress.add_task(bar, total=events) for bar in bars}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Say what begins, and time it; a step that fails is not in `took`."""
        began = self._clock()
        self.say(f"{len(self.took) + 1}. {what}")
        yield
        self.took.append((what, self._clock() - began))

    def say(self, sentence: str) -> None:
        """Print a line above the bars."""
        self.console.print(sentence, markup=False)

    def count(self, bar: str, number: int) -> None:
        """Move a bar; without a terminal, print the counts that moved, every five seconds at most."""
        self._counts[bar] = number
        self._progress.update(self._tasks[bar], completed=number)
        if not self.console.is_terminal and self._clock() >= self._due and self._counts != self._printed:
            self._due = self._clock() + PLAIN_EVERY_S
            self._printed = dict(self._counts)
            self.say("   " + ", ".join(f"{name}: {value:,}" for name, value in self._counts.items()))
