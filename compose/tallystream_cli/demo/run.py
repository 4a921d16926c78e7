"""`tallystream demo`: start the system, run the scenario on it, and print whether all numbers agree."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.demo import events
from tallystream_cli.demo.display import Display
from tallystream_cli.demo.results import Row, catch_up, collect, exact, rows
from tallystream_cli.demo.scenario import PROCESSED, SENT, Scenario
from tallystream_cli.demo.sums import SumsReader
from tallystream_cli.local.interrupts import Interrupts
from tallystream_cli.local.system import LocalSystem, SystemSettings
from tallystream_cli.options import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL_EVENTS = events.ROWS * events.REPETITIONS
QUICK_EVENTS = 100_000
MIN_EVENTS, MAX_EVENTS = 20_000, 100_000_000
TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The settings of `tallystream demo`.

    Attributes:
        events: how many to send; None for 1,010,328, or 100,000 with `quick`.
        quick: whether to send fewer events.
        headless: whether to leave out the page and the lag collector.
        keep: whether to keep running after the comparison, until Ctrl-C.
        data: an empty folder for all data; None for a temporary one, which is removed at the end unless the
            demonstration fails.
        page_port: 0 selects a free port.
        as_json: whether to print one JSON object instead of tables; everything else then goes to standard error.

    Raises:
        ConfigError: the number is out of range, or the folder is not empty.
    """

    events: int | None = None
    quick: bool = False
    headless: bool = False
    keep: bool = False
    data: Path | None = None
    page_port: int = 0
    as_json: bool = False

    def __post_init__(self) -> None:
        if not MIN_EVENTS <= self.number <= MAX_EVENTS:
            raise ConfigError("--events", self.events, f"give a number from {MIN_EVENTS:,} to {MAX_EVENTS:,}")
        if self.data is not None and self.data.exists() and (not self.data.is_dir() or any(self.data.iterdir())):
            raise ConfigError("--data", str(self.data), "name an empty folder: earlier records would be counted too")

    @property
    def number(self) -> int:
        """The number of events to send."""
        if self.events is not None:
            return self.events
        return QUICK_EVENTS if self.quick else ALL_EVENTS


def run(settings: DemoSettings) -> int:
    """Run the demonstration; return 0 if every number agrees and the kill made records be processed twice, else 1.

    Ctrl-C and SIGTERM stop it at any moment, with everything that it started; the exit code is then 130.

    Raises:
        TallystreamError: a component did not start, died, or made no progress.
    """
    interrupts = Interrupts()
    folder = settings.data or Path(tempfile.mkdtemp(prefix="tallystream-demo-"))
    keep_folder = True
    with Display(settings.number, (SENT, PROCESSED), to=sys.stderr if settings.as_json else sys.stdout) as display:
        try:
            with interrupts.installed():
                code = _run(settings, folder, display, interrupts)
            keep_folder = code != 0
        except KeyboardInterrupt:
            display.say("Stopped, with everything that was started.")
            code, keep_folder = INTERRUPTED, False
        finally:
            if keep_folder:
                display.say(f"Journals and logs are kept in {folder}")
    if not keep_folder and settings.data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _run(settings: DemoSettings, folder: Path, display: Display, interrupts: Interrupts) -> int:
    started_at = time.monotonic()
    topics = Topics()
    with ExitStack() as stack:
        # Internal metrics would change between the reading of the sums and of what they are compared with.
        local_settings = SystemSettings(
            folder / "system",
            page_port=settings.page_port,
            page=not settings.headless,
            own_metrics=False,
        )
        system = LocalSystem(local_settings, say=lambda line: display.say(f"   {line}"), check=interrupts.check)
        # The stack runs the callbacks in reverse order, so signals are ignored before anything is stopped.
        stack.callback(system.stop)
        stack.callback(interrupts.ignore)
        reading = stack.enter_context(ThreadPoolExecutor(1)).submit(events.read_events, settings.number)
        components = "broker, aggregator, shipper" + ("" if settings.headless else ", lag collector, page")
        with display.step(f"Start {components}"):
            system.start()
        display.say(f"   broker {system.bootstrap_servers}, store {system.store_spec}")
        if system.page_url:
            display.say(f"   the page: {system.page_url}")
        servers = system.bootstrap_servers
        sums = stack.enter_context(closing(SumsReader(servers, topics.agg)))
        scenario = Scenario(
            servers,
            folder,
            settings.number,
            sums=sums,
            display=display,
            tick=system.tick,
            # Small enough for many reports and commits, large enough that they do not take most of the time.
            batch=max(200, min(2000, settings.number // 400)),
        )
        stack.callback(scenario.kill_all)
        stack.callback(interrupts.ignore)
        with display.step(f"Send {settings.number:,} flights to a topic of {events.PARTITIONS} partitions"):
            sent = scenario.send(reading.result())
        with display.step("Start app-1, then app-2, which shares the partitions"):
            scenario.start_both()
        with display.step("kill -9 app-2 between its report and its commit; app-1 takes over"):
            held = scenario.kill()
        display.say(f"   app-2 had reported {held:,} events and not committed them")
        with display.step("Start app-2 again with the same instance ID"):
            scenario.restart()
        with display.step("Process the rest at full speed, and stop both"):
            scenario.finish()
        with display.step("Wait until aggregator and shipper have caught up"):
            catch_up(scenario, servers, topics, sums)
        with display.step(f"Replay {topics.metrics}, read the store and the journals, compare"):
            results = collect(scenario, servers, topics, sums, StoreSettings.parse(system.store_spec), sent=sent)
        table = rows(results)
        seconds = time.monotonic() - started_at
        if settings.as_json:
            sys.stdout.write(json.dumps(as_dict(table, display.durations, seconds)) + "\n")
            sys.stdout.flush()
        else:
            _show(display, table, seconds)
        if settings.keep:
            _run_until_interrupted(system, display)
        return 0 if exact(table) else 1


def _run_until_interrupted(system: LocalSystem, display: Display) -> None:
    display.say(f"Everything stays up until Ctrl-C. The page: {system.page_url or 'none, because of --headless'}")
    try:
        while True:
            system.tick()
            time.sleep(TICK_S)
    except KeyboardInterrupt:
        display.say("Stopping.")


def as_dict(table: Sequence[Row], durations: Sequence[tuple[str, float]], seconds: float) -> dict[str, object]:
    """Return the tables as they are printed with --json; `durations` are the steps, `seconds` the total."""
    return {
        "exact": exact(table),
        "rows": [row._asdict() for row in table],
        "steps": [{"step": name, "seconds": round(duration, 1)} for name, duration in durations],
        "seconds": round(seconds, 1),
    }


def _show(display: Display, rows: Sequence[Row], seconds: float) -> None:
    table = Table("what", "value", "compared with", "value", "agrees")
    for row in rows:
        agrees = {None: "", True: "yes", False: "NO"}[row.agrees]
        table.add_row(row.what, row.value, row.against, row.other, agrees)
    steps = Table("step", "seconds")
    for name, duration in display.durations:
        steps.add_row(name, f"{duration:.1f}")
    steps.add_row("all", f"{seconds:.1f}")
    display.console.print(table)
    display.console.print(steps)
    display.say("Agreement: exact, to the integer." if exact(rows) else "Agreement: NOT exact.")
