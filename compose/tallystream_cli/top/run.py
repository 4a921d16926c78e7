"""Shows the overview once, or refreshed in place until a key or a signal."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from tallystream.errors import ConfigError
from tallystream_aggregator.shutdown import stop_on_signals
from tallystream_cli.top.keyboard import Keyboard
from tallystream_cli.top.screen import TopScreen
from tallystream_dashboards.printable import printable_json
from tallystream_dashboards.terminal.overview import overview

if TYPE_CHECKING:
    from tallystream_aggregator.shutdown import StopRequest
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_dashboards.terminal.overview import Overview

SHOWN, UNREADABLE = 0, 3
"""Exit codes: the state was shown, the store can't be read."""

HEIGHT = 24
"""The number of lines of a screen that is not shown in a terminal."""
POLL_INTERVAL_S = 0.1
"""The interval in seconds at which a signal and a new size of the terminal are noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopSettings:
    """Settings of `tallystream top`.

    Raises:
        ConfigError: the interval is out of its bounds.
    """

    store: StoreSettings
    interval_s: float = 2.0
    once: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        if not 0.5 <= self.interval_s <= 3600:
            raise ConfigError("--interval", self.interval_s, "give seconds from 0.5 to 3600")


def run(settings: TopSettings) -> int:
    """Show the state and return the exit code: 0, or 3 if one screen or object was printed without a readable store.

    Must be called in the main thread.

    Raises:
        ConfigError: the store's settings can't work.
    """
    console = Console(highlight=False)
    if settings.json:
        state = _read(settings)
        sys.stdout.write(printable_json(json.dumps(state.as_json(), ensure_ascii=False)) + "\n")
    elif settings.once or not sys.stdout.isatty() or console.is_dumb_terminal:
        state = _read(settings)
        # In a terminal, the line below the screen is the next prompt's.
        height = console.height - 1 if sys.stdout.isatty() else HEIGHT
        console.print(TopScreen(state, keys=False), height=height)
    else:
        _show(settings, console)
        return SHOWN
    return SHOWN if state.readable else UNREADABLE


def _read(settings: TopSettings) -> Overview:
    return overview(settings.store, round(time.time() * 1000))


def _show(settings: TopSettings, console: Console) -> None:
    """Show the state on the terminal's alternate screen until q, Ctrl-C or SIGTERM, and restore the terminal."""
    with stop_on_signals() as stop, Keyboard(sys.stdin) as keyboard, console.screen():
        while True:
            screen = TopScreen(_read(settings), keys=keyboard.present)
            if _ended(screen, console, keyboard, stop, time.monotonic() + settings.interval_s):
                return


def _ended(screen: TopScreen, console: Console, keyboard: Keyboard, stop: StopRequest, until_s: float) -> bool:
    """Draw the screen, again when the size changes. Return True as soon as the command has to end, False at `until_s`.

    A screen is not drawn if the command has to end.
    """
    size = None
    while not stop.is_set():
        if console.size != size:
            size = console.size
            console.update_screen(screen)
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return False
        try:
            if "q" in keyboard.keys(min(left_s, POLL_INTERVAL_S)):
                return True
        except OSError:  # the terminal was closed
            return True
    return True
