"""`up`, `down` and `status`: the local system from the command line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import files
from tallystream_cli.local import record
from tallystream_cli.local.interrupts import Interrupts
from tallystream_cli.local.system import RECORD, LocalSystem, SystemSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TICK_S = 0.2
UP_S = 600.0
DOWN_S = 300.0


def foreground(settings: SystemSettings) -> int:
    """Run the system until SIGTERM, Ctrl-C or the terminal's end; then stop all of it and return 0.

    Progress goes to standard error.

    Raises:
        ConfigError: a port is taken, or another system uses the data folder.
        StartError: a component did not come up.
    """
    interrupts = Interrupts()
    with interrupts.installed():
        system = LocalSystem(settings, say=_say, check=interrupts.check)
        try:
            system.start()
            _say(f"broker {system.bootstrap_servers}, store {system.store_spec}")
            _say(f"page {system.page_url}")
            while True:
                system.tick()
                time.sleep(TICK_S)
        except KeyboardInterrupt:
            return 0
        finally:
            interrupts.ignore()
            system.stop()


def detach(arguments: Sequence[str], data: Path) -> int:
    """Start `up` in a session of its own and return 0 when it is up; its own exit code when it ended before that.

    What it says goes to `up.log` in the data folder and, until it is up, to standard error too. Ctrl-C and SIGTERM
    end it.

    Raises:
        ConfigError: the data folder can't be used.
        TallystreamError: it was not up in ten minutes.
    """
    try:
        files.make_folder(data)
        out = (data / "up.log").open("ab+")
    except OSError as error:
        raise ConfigError("--data", str(data), f"the system reports: {error.strerror}") from error
    command = [sys.executable, "-m", "tallystream_cli.main", *(a for a in arguments if a != "--detach")]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end what is being started
    with out:
        out.seek(0, os.SEEK_END)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        with (data / "up.log").open("rb") as log:
            log.seek(out.tell())
            try:
                return _wait_until_up(process, data, log)
            except BaseException:
                process.terminate()
                process.wait(DOWN_S)
                _echo(log)
                raise


def _wait_until_up(process: subprocess.Popen[bytes], data: Path, log: IO[bytes]) -> int:
    began = time.monotonic()
    while time.monotonic() - began < UP_S:
        code = process.poll()
        _echo(log)
        if code is not None:  # it has said why
            return code or 1
        known = record.read(data / RECORD)
        if known is not None and known.supervisor.pid == process.pid and known.up:
            sys.stdout.write(f"up: end it with: tallystream down --data {data}\n")
            return 0
        time.sleep(TICK_S)
    raise TallystreamError(f"up: not up after {UP_S:g} s; {data / 'logs'} says why")


def _echo(log: IO[bytes]) -> None:
    sys.stderr.write(log.read().decode("utf-8", errors="replace"))
    sys.stderr.flush()


def down(data: Path) -> int:
    """End the system of a data folder and return 0 when nothing of it runs any more, or ran."""
    known = record.read(data / RECORD)
    if known is None or not known.supervisor.alive():
        ended = 0 if known is None else record.end_left_over(known)
        what = f"{ended} left-over processes are ended" if ended else f"nothing ran in {data}"
        sys.stdout.write(f"down: {what}\n")
        return 0
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisor = psutil.Process(known.supervisor.pid)
        supervisor.terminate()
        try:
            supervisor.wait(DOWN_S)
        except psutil.TimeoutExpired:
            supervisor.kill()
            supervisor.wait(DOWN_S)
    record.end_left_over(known)
    sys.stdout.write(f"down: ended; {data} is kept\n")
    return 0


def status(data: Path, *, as_json: bool = False) -> int:
    """Print the components and return 0 when all are up, 1 otherwise."""
    known = record.read(data / RECORD)
    if known is not None and not known.supervisor.alive():
        known = None
    found = [] if known is None else [_component(one) for one in known.components]
    all_up = known is not None and known.up and all(one["state"] == "up" for one in found)
    if as_json:
        shown = {"data": str(data.absolute()), "running": known is not None, "up": all_up}
        addresses = {name: getattr(known, name, "") for name in ("bootstrap_servers", "page_url", "store")}
        sys.stdout.write(json.dumps({**shown, **addresses, "components": found}) + "\n")
    elif known is None:
        sys.stdout.write(f"nothing runs in {data}; start it with: tallystream up --data {data}\n")
    else:
        table = Table("component", "state", "restarts", "process")
        for one in found:
            table.add_row(one["name"], one["state"], str(one["restarts"]), str(one["pid"] or ""))
        Console().print(table)
        sys.stdout.write(f"broker {known.bootstrap_servers}, page {known.page_url}, store {known.store}\n")
    return 0 if all_up else 1


def _component(one: record.ComponentRecord) -> dict[str, Any]:
    """Return a component's state as it is now, and the process ID of one that runs."""
    process = one.process if one.process is not None and one.process.alive() else None
    state = "died" if process is None and one.state == "up" else one.state
    return {"name": one.name, "state": state, "restarts": one.restarts, "pid": process and process.pid}


def _say(sentence: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {sentence}\n")
    sys.stderr.flush()
