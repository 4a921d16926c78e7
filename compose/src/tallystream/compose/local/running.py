"""`up`, `down` and `status`: the local system from the command line."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.table import Table

from tallystream.compose.local import record
from tallystream.compose.local.system import RECORD, LocalSystem, SystemSettings
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TICK_S = 0.2
UP_S = 300.0
DOWN_S = 180.0


def foreground(settings: SystemSettings) -> int:
    """Run the system until SIGTERM or Ctrl-C; then stop all of it and return 0. Progress goes to standard error.

    Raises:
        ConfigError: a port is taken, or another system uses the data folder.
        StartError: a component did not come up.
    """
    stop = threading.Event()

    def request(_number: int, _frame: object) -> None:
        if not stop.is_set():
            stop.set()
            raise KeyboardInterrupt  # out of whatever start-up is waiting for

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request)
    system = LocalSystem(settings, say=_say)
    try:
        system.start()
        _say(f"broker {system.bootstrap_servers}, store {system.store_spec}")
        _say(f"page {system.page_url}")
        while True:
            system.tick()
            stop.wait(TICK_S)
    except KeyboardInterrupt:
        _say("stopping")
    finally:
        system.stop()
    return 0


def detach(arguments: Sequence[str], data: Path) -> int:
    """Start `up` in a session of its own and return 0 when it is up.

    Raises:
        TallystreamError: it ended, or was not up in five minutes; the message ends with what it said last.
    """
    data.mkdir(parents=True, exist_ok=True)
    log = data / "up.log"
    command = [sys.executable, "-m", "tallystream.compose.cli", *(a for a in arguments if a != "--detach")]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    began = time.monotonic()
    while time.monotonic() - began < UP_S:
        known = record.read(data / RECORD)
        if known is not None and known.supervisor.pid == process.pid and known.up:
            sys.stdout.write(f"up: broker {known.bootstrap_servers}, page {known.page_url}, data {data}\n")
            return 0
        if process.poll() is not None:
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            raise TallystreamError(f"up: it ended with code {process.returncode}:\n{said[-2000:]}")
        time.sleep(TICK_S)
    process.terminate()
    raise TallystreamError(f"up: not up after {UP_S:g} s; {log} says why.")


def down(data: Path) -> int:
    """End the system of a data folder and return 0 when nothing of it runs any more, or ran."""
    known = record.read(data / RECORD)
    if known is None or not known.supervisor.alive():
        survivors = [] if known is None else [one for one in known.components if one.process and one.process.alive()]
        for one in survivors:  # only where the supervisor was killed: its components should have died with it
            _kill(one.process)
        sys.stdout.write(
            f"down: nothing ran in {data}\n" if not survivors else f"down: {len(survivors)} left over, ended\n"
        )
        return 0
    supervisor = psutil.Process(known.supervisor.pid)
    supervisor.terminate()
    try:
        supervisor.wait(DOWN_S)
    except psutil.TimeoutExpired:
        supervisor.kill()
        supervisor.wait(DOWN_S)
    for one in known.components:
        _kill(one.process)
    sys.stdout.write(f"down: {data} is kept\n")
    return 0


def status(data: Path) -> int:
    """Print the components and return 0 when all are up, 1 otherwise."""
    known = record.read(data / RECORD)
    if known is None or not known.supervisor.alive():
        sys.stdout.write(f"nothing runs in {data}; start it with: tallystream up --data {data}\n")
        return 1
    table = Table("component", "state", "restarts", "process")
    for one in known.components:
        alive = one.process is not None and one.process.alive()
        state = one.state if alive or one.state != "up" else "died"
        table.add_row(one.name, state, str(one.restarts), str(one.process.pid) if one.process and alive else "")
    console = Console()
    console.print(table)
    console.print(f"broker {known.bootstrap_servers}, page {known.page_url}, store {known.store}", highlight=False)
    all_up = known.up and all(one.state == "up" and one.process and one.process.alive() for one in known.components)
    return 0 if all_up else 1


def _kill(process: record.Process | None) -> None:
    if process is not None and process.alive():
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(process.pid).kill()


def _say(sentence: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {sentence}\n")
    sys.stderr.flush()
