"""`tallystream demo`: start the system, run the scenario on it, and print whether all numbers agree."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_aggregator.verify import job
from tallystream_cli.demo import events
from tallystream_cli.demo.app import WINDOWS
from tallystream_cli.demo.results import Found, Row, exact, rows, twice
from tallystream_cli.demo.scenario import Scenario
from tallystream_cli.demo.sums import SumsReader, read_points
from tallystream_cli.local.system import LocalSystem, interruptible
from tallystream_dashboards.exit_codes import INTERRUPTED
from tallystream_dashboards.terminal.show import aligned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

ALL_EVENTS = events.ROWS * events.REPETITIONS
QUICK_EVENTS = 100_000
LINE_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The options of `tallystream demo`. Without `data`, the folder is temporary, and kept if the demonstration fails.

    Raises:
        ConfigError: the folder is not empty, or this user may not look for it.
    """

    quick: bool = False
    headless: bool = False
    keep: bool = False
    data: Path | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        try:
            empty = self.data is None or not self.data.exists() or (self.data.is_dir() and not any(self.data.iterdir()))
        except OSError as error:
            raise ConfigError("--data", str(self.data), f"the system reports: {error.strerror}") from error
        if not empty:
            raise ConfigError("--data", str(self.data), "name an empty folder: earlier records would be counted too")

    @property
    def number(self) -> int:
        """The number of events to send."""
        return QUICK_EVENTS if self.quick else ALL_EVENTS


class Display:
    """Prints lines to `to`.

    A terminal or a pipe that is closed is no error: the demonstration, and its orderly stop, go on.
    """

    def __init__(self, to: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = 0
        self._to, self._clock = to, clock
        self._counts: dict[str, int] = {}
        self._next_line_at = clock() + LINE_INTERVAL_S

    def step(self, name: str) -> None:
        """Print the number and the name of a step that begins."""
        self._steps += 1
        self.say(f"{self._steps}. {name}")

    def say(self, text: str) -> None:
        """Print a text."""
        try:
            print(text, file=self._to, flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._to.fileno())  # also for what is buffered

    def count(self, **counts: int) -> None:
        """Print the counts if they have changed, at most every five seconds."""
        changed = self._counts | counts != self._counts
        self._counts |= counts
        if changed and self._clock() >= self._next_line_at:
            self._next_line_at = self._clock() + LINE_INTERVAL_S
            self.say("   " + ", ".join(f"{name}: {value:,}" for name, value in self._counts.items()))


def run(settings: DemoSettings) -> int:
    """Run the demonstration; return 0 if every number agrees and the kills made records be processed twice, else 1.

    Ctrl-C and SIGTERM stop it, with everything that it started; the exit code is then 130.

    Raises:
        TallystreamError: a component did not start, died, or made no progress.
    """
    folder = settings.data or Path(tempfile.mkdtemp(prefix="tallystream-demo-"))
    keep_folder = True
    display = Display(sys.stderr if settings.as_json else sys.stdout)
    try:
        with interruptible() as check:
            code = _run(settings, folder, display, check)
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


def _run(settings: DemoSettings, folder: Path, display: Display, check: Callable[[], None]) -> int:
    started_at = time.monotonic()
    topics = Topics()
    with ExitStack() as stack:
        system = LocalSystem(
            folder / "system",
            say=lambda line: display.say(f"   {line}"),
            check=check,
            page=not settings.headless,
            # Internal metrics would change between the reading of the sums and of what they are compared with.
            own_metrics=False,
        )
        stack.callback(system.stop)

        def progress(**counts: int) -> None:
            system.tick()
            display.count(**counts)

        reading = stack.enter_context(ThreadPoolExecutor(1)).submit(events.read_events, settings.number)
        components = "broker, aggregator" + ("" if settings.headless else ", page")
        display.step(f"Start {components}")
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
            progress=progress,
            # Small enough for many reports and commits, large enough that they do not take most of the time.
            batch=max(200, min(2000, settings.number // 500)),
        )
        stack.callback(scenario.kill_all)
        display.step(f"Send {settings.number:,} flights to a topic of {events.PARTITIONS} partitions")
        sent = scenario.send(reading.result())
        display.step("Start app-1, then app-2, which shares the partitions")
        for one in scenario.apps:
            scenario.start(one)
        kills = []
        for last, where in WINDOWS.items():
            display.step(f"kill -9 app-2 {where}; app-1 takes over, and app-2 starts again with the same ID")
            scenario.kill(last, topics)
            kills.append(twice(scenario.lines(), sums.values()))
            scenario.start(scenario.apps[1])
        display.step("Process the rest at full speed, and stop both")
        scenario.finish()
        display.step("Wait until the aggregator has summed and shipped all of it")
        scenario.catch_up(topics)
        display.step(f"Replay {topics.metrics}, read the store and the journals, compare")
        values, verified = sums.values(), job.run(Cluster(servers))
        with closing(open_store(StoreSettings.parse(system.store_spec))) as reader:
            in_store = read_points(reader, values)
        found = Found(sent, scenario.lines(), kills, values, sums.decreases, in_store, verified)
        table = rows(found)
        seconds = time.monotonic() - started_at
        if settings.as_json:
            sys.stdout.write(json.dumps(as_dict(table, seconds)) + "\n")
            sys.stdout.flush()
        else:
            display.say(as_text(table, seconds))
        if settings.keep:
            display.say(f"Everything stays up until Ctrl-C. The page: {system.page_url or 'none: --headless'}")
            with suppress(KeyboardInterrupt):
                system.run()
            display.say("Stopping.")
        return 0 if exact(table) else 1


def as_dict(table: Sequence[Row], seconds: float) -> dict[str, object]:
    """Return the table and how long all took, as they are printed with --json."""
    return {
        "exact": exact(table),
        "rows": [row._asdict() for row in table],
        "seconds": round(seconds, 1),
    }


def as_text(table: Sequence[Row], seconds: float) -> str:
    """Return the table as text, with a last line that says whether all rows agree."""
    agrees = {None: "", True: "yes", False: "NO"}
    compared = [("what", "value", "compared with", "value", "agrees")]
    compared += [(*row[:4], agrees[row.agrees]) for row in table]
    result = "exact, to the integer" if exact(table) else "NOT exact"
    return f"{aligned(compared, right=(1, 3))}\nAgreement: {result}, in {seconds:.1f} s."
