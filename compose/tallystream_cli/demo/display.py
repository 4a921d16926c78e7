"""The display of the progress, as bars on a terminal and as lines elsewhere, and of the time of each step."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

LINE_INTERVAL_S = 5.0


class _Console(Console):
    """Discards its output after a pipe is closed; Rich would end the process, in the middle of an orderly stop."""

    def on_broken_pipe(self) -> None:
        """Write to /dev/null from now on, also what is buffered."""
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, self.file.fileno())
        os.close(devnull)


class Display:
    """Shows the progress inside a `with` block. `durations` has each finished step with its seconds, in order.

    A terminal or a pipe that is closed is no error.

    There is one bar with the total `events` for each name in `bars`. The output goes to `to`, by default to standard
    output.
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
        self.console = console or _Console(highlight=False, file=to, width=None if (to or sys.stdout).isatty() else 120)
        self.durations: list[tuple[str, float]] = []
        self._clock = clock
        self._counts = dict.fromkeys(bars, 0)
        self._printed: dict[str, int] = {}
        self._next_line_at = clock() + LINE_INTERVAL_S
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
        with suppress(OSError):
            self._progress.stop()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print the name of a step and measure its time; a step that fails is not in `durations`."""
        started_at = self._clock()
        self.say(f"{len(self.durations) + 1}. {name}")
        yield
        self.durations.append((name, self._clock() - started_at))

    def say(self, sentence: str) -> None:
        """Print a line above the bars."""
        with suppress(OSError):
            self.console.print(sentence, markup=False)

    def count(self, bar: str, number: int) -> None:
        """Update a bar; without a terminal, print the counts if they changed, at most every five seconds."""
        self._counts[bar] = number
        self._progress.update(self._tasks[bar], completed=number)
        if not self.console.is_terminal and self._clock() >= self._next_line_at and self._counts != self._printed:
            self._next_line_at = self._clock() + LINE_INTERVAL_S
            self._printed = dict(self._counts)
            self.say("   " + ", ".join(f"{name}: {value:,}" for name, value in self._counts.items()))
