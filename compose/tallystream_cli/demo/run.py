"""`tallystream demo`: the whole system, the choreography on it, and the table that says whether the numbers agree."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.demo import dataset
from tallystream_cli.demo.display import Display
from tallystream_cli.demo.results import Row, catch_up, exact, gather, rows
from tallystream_cli.demo.scenario import PROCESSED, SENT, Scenario
from tallystream_cli.demo.sums import Watch
from tallystream_cli.local.interrupts import Interrupts, no_orphans
from tallystream_cli.local.system import LocalSystem, SystemSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL_EVENTS = dataset.ROWS * dataset.TIMES
QUICK_EVENTS = 100_000
MIN_EVENTS, MAX_EVENTS = 20_000, 100_000_000
TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What `tallystream demo` may be told.

    `events` is how many are sent: None means 1,010,328, or 100,000 with `quick`. `headless` leaves the page and the lag
    collector out. `keep` stays up after the table until Ctrl-C. `data` is an empty folder for everything; None takes a
    temporary one, which is removed at the end unless something failed. A `page_port` of 0 takes a free one. `as_json`
    prints one JSON object in the place of the tables, and everything else on standard error.

    Raises:
        ConfigError: the number is out of its bounds, or the folder is not empty.
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
        """How many events are sent."""
        if self.events is not None:
            return self.events
        return QUICK_EVENTS if self.quick else ALL_EVENTS


def run(settings: DemoSettings) -> int:
    """Run the demonstration; return 0 when every number agrees and the kill had records processed twice, 1 otherwise.

    Ctrl-C and SIGTERM end it at any moment, with everything that it started; the code is 130 then.

    Raises:
        TallystreamError: a part did not start, died, or got stuck.
    """
    interrupts = Interrupts()
    folder = settings.data or Path(tempfile.mkdtemp(prefix="tallystream-demo-"))
    done = False
    with ExitStack() as stack:
        stack.enter_context(no_orphans())
        display = stack.enter_context(
            Display(settings.number, (SENT, PROCESSED), to=sys.stderr if settings.as_json else sys.stdout)
        )
        try:
            with interrupts.installed():
                code = _run(settings, folder, display, interrupts)
            done = code == 0
        except KeyboardInterrupt:
            display.say("Stopped, with everything that was started.")
            code, done = 130, True
        finally:
            if not done:
                display.say(f"Journals and logs are kept in {folder}")
    if done and settings.data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _run(settings: DemoSettings, folder: Path, display: Display, interrupts: Interrupts) -> int:
    began = time.monotonic()
    topics = Topics()
    with ExitStack() as stack:
        # On the way out no signal may cut the stopping short; this is entered first, so that it is left last.
        # The system's own figures would come between the reading of the sums and of what they have to equal.
        parts = SystemSettings(
            folder / "system", page_port=settings.page_port, page=not settings.headless, own_metrics=False
        )
        system = LocalSystem(parts, say=lambda sentence: display.say(f"   {sentence}"), check=interrupts.check)
        stack.callback(system.stop)
        stack.callback(interrupts.ignore)
        reading = stack.enter_context(ThreadPoolExecutor(1)).submit(dataset.read_events, settings.number)
        named = "broker, aggregator, shipper" + ("" if settings.headless else ", lag collector, page")
        with display.step(f"Start {named}"):
            system.start()
        display.say(f"   broker {system.bootstrap_servers}, store {system.store_spec}")
        if system.page_url:
            display.say(f"   the page: {system.page_url}")
        servers = system.bootstrap_servers
        watch = stack.enter_context(Watch(servers, topics.agg))
        play = Scenario(
            servers,
            folder,
            settings.number,
            watch=watch,
            display=display,
            tick=system.tick,
            # Many enough that a report and a commit are seen often, large enough that they do not cost the most.
            batch=max(200, min(2000, settings.number // 400)),
        )
        stack.callback(play.end)
        stack.callback(interrupts.ignore)
        with display.step(f"Send {settings.number:,} flights to a topic of {dataset.PARTITIONS} partitions"):
            sent = play.send(reading.result())
        with display.step("Start app-1, then app-2, which shares the partitions"):
            play.share()
        with display.step("kill -9 app-2 between its report and its commit; app-1 takes over"):
            held = play.kill()
        display.say(f"   app-2 had reported {held:,} events and not committed them")
        with display.step("Start app-2 again under the same instance ID"):
            play.come_back()
        with display.step("Process the rest, flat out, and end both"):
            play.finish()
        with display.step("Wait until aggregator and shipper have caught up"):
            catch_up(play, servers, topics, watch)
        with display.step("Replay metrics plainly, read the store and the journals, compare"):
            found = gather(play, servers, topics, watch, StoreSettings.parse(system.store_spec), sent=sent)
        table = rows(found)
        seconds = time.monotonic() - began
        if settings.as_json:
            sys.stdout.write(json.dumps(as_dict(table, display.took, seconds)) + "\n")
            sys.stdout.flush()
        else:
            _show(display, table, seconds)
        if settings.keep:
            _stay(system, display)
        return 0 if exact(table) else 1


def _stay(system: LocalSystem, display: Display) -> None:
    display.say(f"Everything stays up until Ctrl-C. The page: {system.page_url or 'none, it is headless'}")
    try:
        while True:
            system.tick()
            time.sleep(TICK_S)
    except KeyboardInterrupt:
        display.say("Stopping.")


def as_dict(found: Sequence[Row], took: Sequence[tuple[str, float]], seconds: float) -> dict[str, object]:
    """Return the tables as JSON has them; `took` and `seconds` are the seconds of each step and of all."""
    return {
        "exact": exact(found),
        "rows": [row._asdict() for row in found],
        "steps": [{"step": what, "seconds": round(of, 1)} for what, of in took],
        "seconds": round(seconds, 1),
    }


def _show(display: Display, found: Sequence[Row], seconds: float) -> None:
    table = Table("what", "value", "against", "value", "agrees")
    for row in found:
        table.add_row(row.what, row.value, row.against, row.other, _word(row.agrees))
    steps = Table("step", "seconds")
    for what, took in display.took:
        steps.add_row(what, f"{took:.1f}")
    steps.add_row("all", f"{seconds:.1f}")
    display.console.print(table)
    display.console.print(steps)
    display.say("Agreement: exact, to the integer." if exact(found) else "Agreement: NOT exact.")


def _word(agrees: bool | None) -> str:
    return {None: "", True: "yes", False: "NO"}[agrees]
