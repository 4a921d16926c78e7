"""`tallystream demo`: starts the whole system, runs the choreography, and prints what agrees with what."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from tallystream.compose.demonstration import flights
from tallystream.compose.demonstration.compare import Line, compare
from tallystream.compose.demonstration.play import Play
from tallystream.compose.demonstration.steps import Steps
from tallystream.compose.local.system import LocalSystem, SystemSettings
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

QUICK_EVENTS = 100_000
MIN_EVENTS = 10_000
"""Fewer do not last until the kill."""

MAX_EVENTS = 20_000_000


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What `tallystream demo` may be told. `data` None: a temporary folder that is removed at the end."""

    events: int | None = None
    quick: bool = False
    headless: bool = False
    keep: bool = False
    data: Path | None = None
    page_port: int = 0

    def __post_init__(self) -> None:
        if self.events is not None and not MIN_EVENTS <= self.events <= MAX_EVENTS:
            raise ConfigError("--events", self.events, f"give a number from {MIN_EVENTS:,} to {MAX_EVENTS:,}")
        if self.data is not None and self.data.exists() and any(self.data.iterdir()):
            raise ConfigError("--data", str(self.data), "the demonstration wants an empty folder: name another one")

    @property
    def total(self) -> int:
        """How many events are sent."""
        return self.events or (QUICK_EVENTS if self.quick else flights.ALL_EVENTS)


def run(settings: DemoSettings) -> int:
    """Run the demonstration; return 0 when everything agrees and the kill made records be processed twice, else 1.

    Ctrl-C and SIGTERM stop every process that it started, and raise KeyboardInterrupt.

    Raises:
        ConfigError: a port is taken.
        TallystreamError: a part did not start, or something did not happen in its time.
    """
    folder = settings.data or Path(tempfile.mkdtemp(prefix="tallystream-demo-"))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    steps = Steps()
    system = LocalSystem(
        SystemSettings(folder / "system", page_port=settings.page_port, page=not settings.headless), say=steps.say
    )
    play = Play(system, folder, settings.total, steps, stop)
    try:
        with steps.step("start broker, aggregator, shipper" + ("" if settings.headless else ", lag collector, page")):
            system.start()
        if system.page_url:
            steps.say(f"the page: {system.page_url}")
        lines = compare(play.run())
        _print(steps, lines)
        code = 0 if all(line.agrees is not False for line in lines) else 1
        if settings.keep:
            _stay(system, steps)
        return code
    finally:
        # Nothing may cut this short: each process is waited for, and none for ever.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop.set()
        play.end()
        system.stop()
        if settings.data is None:
            shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stay(system: LocalSystem, steps: Steps) -> None:
    steps.say(f"everything stays up until Ctrl-C; the page: {system.page_url or 'none, it was headless'}")
    try:
        while True:
            system.tick()
            time.sleep(0.2)
    except KeyboardInterrupt:
        steps.say("stopping")


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _print(steps: Steps, lines: Sequence[Line]) -> None:
    table = Table(title="What was sent, processed and counted", title_justify="left")
    table.add_column("")
    table.add_column("number", justify="right")
    table.add_column("agrees")
    for line in lines:
        mark = {None: "", True: "[green]exactly[/]", False: "[red]NO[/]"}[line.agrees]
        table.add_row(line.what, line.value, mark)
    steps.console.print(table)
    times = Table(title="How long each step took", title_justify="left")
    times.add_column("step")
    times.add_column("seconds", justify="right")
    for name, seconds in steps.took.items():
        times.add_row(name, f"{seconds:.1f}")
    steps.console.print(times)
    agreed = all(line.agrees is not False for line in lines)
    steps.console.print("[green bold]Agreement: exact.[/]" if agreed else "[red bold]Agreement: NOT exact.[/]")
