"""The progress display: each step with its time; a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLAIN_EVERY_S = 5.0


class Steps:
    """Names steps and times them; `took` maps a step to seconds. `clock` is in seconds and never goes back."""

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or _console()
        self.took: dict[str, float] = {}
        self._clock = clock
        self._now = ""
        self._said_at = 0.0
        self._show: Callable[[str], None] = self._plain

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show a step until the block ends, and keep its time."""
        began, self._now = self._clock(), name
        self._said_at = began
        try:
            if self.console.is_terminal:
                with self.console.status(f"{name} …") as status:
                    self._show = status.update
                    yield
            else:
                self.console.print(f"… {name}")
                yield
        finally:
            self._show = self._plain
        self.took[name] = self._clock() - began
        self.console.print(f"[green]✓[/] {name} [dim]{self.took[name]:.1f} s[/]")

    def update(self, text: str) -> None:
        """Say how far the step is."""
        self._show(f"{self._now}: {text}")

    def say(self, sentence: str) -> None:
        """Print a line of its own."""
        self.console.print(f"  {sentence}", markup=False)

    def _plain(self, text: str) -> None:
        if self._clock() - self._said_at >= PLAIN_EVERY_S:
            self._said_at = self._clock()
            self.console.print(f"  {text}", markup=False)


def _console() -> Console:
    console = Console(stderr=True, highlight=False)
    return console if console.is_terminal else Console(stderr=True, highlight=False, width=110)
