"""`up`, `down`, `status` and `demo`: the whole system on one machine."""

from __future__ import annotations

import contextlib
import json as json_
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import psutil
import typer

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import files
from tallystream_cli import options as o
from tallystream_cli.local import state_file
from tallystream_dashboards.exit_codes import BAD, GOOD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TICK_S = 0.2
MAX_START_S = 600.0
MAX_STOP_S = 300.0
MAX_CLOCK_CHANGE_S = 60.0
"""The time at which a process began follows the clock, which may be set by so much while a system runs."""


def up(
    *,
    data: o.Data = Path(".tallystream"),
    broker_port: Annotated[
        int, typer.Option(help="The broker's port; 0 selects a free port.", min=0, max=o.MAX_PORT)
    ] = 9092,
    page_port: Annotated[
        int, typer.Option(help="The page's port; 0 selects a free port.", min=0, max=o.MAX_PORT)
    ] = 8501,
    store: Annotated[
        str | None,
        typer.Option(help="local:PATH or influxdb:URL; by default the local store in the data folder."),
    ] = None,
    otlp_topic: o.OtlpTopic = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when everything is up.")] = False,
) -> None:
    """Run the local system: broker, aggregator and page; a component that dies is restarted."""
    o.require_spark()
    from tallystream_aggregator.sinks.stores import StoreSettings

    parsed = None if store is None else StoreSettings.parse(store).require_readable()
    options = {"broker_port": broker_port, "page_port": page_port, "store": parsed, "otlp_topics": otlp_topic or ()}
    raise typer.Exit(_start_detached(sys.argv[1:], data) if detach else _run(data, options))


def down(*, data: o.Data = Path(".tallystream")) -> None:
    """Stop the local system of a data folder; its data is kept."""
    state = state_file.running(data)
    if state is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor = psutil.Process(state.supervisor)
            if abs(supervisor.create_time() - state.started) > MAX_CLOCK_CHANGE_S:
                raise TallystreamError(
                    f"{data}: the process {state.supervisor} is not its supervisor; run down where up was started."
                )
            supervisor.terminate()
            try:
                supervisor.wait(MAX_STOP_S)
            except psutil.TimeoutExpired:
                supervisor.kill()
                supervisor.wait(MAX_STOP_S)
    killed = state_file.kill_remaining(data)
    if state is not None:
        result = f"stopped; {data} is kept"
    else:
        result = f"remaining processes killed: {killed}" if killed else f"no system runs in {data}"
    sys.stdout.write(f"down: {result}\n")


def status(
    *,
    data: o.Data = Path(".tallystream"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show which components of the local system are up; exit code 0 if all are, 1 otherwise."""
    from tallystream_dashboards.terminal.show import aligned

    state = state_file.running(data)
    components = [] if state is None else state.components
    all_up = state is not None and state.up and all(one.state == "up" for one in components)
    if json:
        content = {"data": str(data.absolute()), "running": state is not None, "up": all_up}
        addresses = {name: getattr(state, name, "") for name in ("bootstrap_servers", "page_url", "api_url", "store")}
        listed = [{name: getattr(one, name) for name in ("name", "state", "restarts", "pid")} for one in components]
        sys.stdout.write(json_.dumps({**content, **addresses, "components": listed}) + "\n")
    elif state is None:
        sys.stdout.write(f"no system runs in {data}; start it with: tallystream up --data {data}\n")
    else:
        rows = [(one.name, one.state, str(one.restarts), str(one.pid or "")) for one in components]
        sys.stdout.write(aligned([("component", "state", "restarts", "process"), *rows], right=(2,)))
        sys.stdout.write(f"broker {state.bootstrap_servers}, store {state.store}\n")
        if state.page_url:
            sys.stdout.write(f"page {state.page_url}, JSON {state.api_url}/v1/problems\n")
    raise typer.Exit(GOOD if all_up else BAD)


def demo(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Send fewer events; takes less than a minute.")] = False,
    headless: Annotated[bool, typer.Option("--headless", help="Run without the page and the lag collector.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep running after the comparison, until Ctrl-C.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="The folder for all data; by default a temporary one, removed at the end.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables; progress goes to standard error.")
    ] = False,
) -> None:
    """Run the demonstration: a million real events, two consumers, a kill -9, and a comparison of every sum."""
    o.require_spark()
    from tallystream_cli.demo.run import DemoSettings, run

    raise typer.Exit(run(DemoSettings(quick=quick, headless=headless, keep=keep, data=data, as_json=json)))


def _run(data: Path, options: Mapping[str, Any]) -> int:
    """Run the system until SIGTERM, SIGINT or SIGHUP, stop it, and return 0. Progress goes to standard error.

    `options` are those of LocalSystem.

    Raises:
        ConfigError: a port is taken, or another system uses the data folder.
        StartError: a component did not start.
    """
    from tallystream_cli.local.system import LocalSystem, interruptible

    with interruptible() as check:
        system = LocalSystem(data, say=_say, check=check, **options)
        try:
            system.start()
            _say(f"broker {system.bootstrap_servers}, store {system.store_spec}")
            _say(f"page {system.page_url}, JSON {system.api_url}/v1/problems")
            system.run()
        except KeyboardInterrupt:
            pass
        finally:
            system.stop()
    return 0


def _start_detached(arguments: Sequence[str], data: Path) -> int:
    """Run `up` in a new session and return 0 when it is up, or its exit code if it ended before.

    Its output goes to `up.log` in the data folder and, until it is up, to standard error too. Ctrl-C and SIGTERM stop
    it until then.

    Raises:
        ConfigError: the data folder can't be used.
        TallystreamError: it was not up after ten minutes.
    """
    try:
        files.make_folder(data)
        out = (data / "up.log").open("ab+")
    except OSError as error:
        raise ConfigError("--data", str(data), f"the system reports: {error.strerror}") from error
    command = [sys.executable, "-m", "tallystream_cli.main", *(a for a in arguments if a != "--detach")]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with out:
        out.seek(0, os.SEEK_END)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        with (data / "up.log").open("rb") as log:
            log.seek(out.tell())
            try:
                return _wait_until_up(process, data, log)
            except BaseException:
                process.terminate()
                process.wait(MAX_STOP_S)
                _copy_to_stderr(log)
                raise


def _wait_until_up(process: subprocess.Popen[bytes], data: Path, log: IO[bytes]) -> int:
    started_at = time.monotonic()
    while time.monotonic() - started_at < MAX_START_S:
        code = process.poll()
        _copy_to_stderr(log)
        if code is not None:
            return code or BAD
        state = state_file.read(data)
        if state is not None and state.supervisor == process.pid and state.up:
            sys.stdout.write(f"up: stop it with: tallystream down --data {data}\n")
            return 0
        time.sleep(TICK_S)
    raise TallystreamError(f"up: not up after {MAX_START_S:g} s; see the logs in {data / 'logs'}")


def _copy_to_stderr(log: IO[bytes]) -> None:
    sys.stderr.write(log.read().decode("utf-8", errors="replace"))
    sys.stderr.flush()


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError):  # the terminal or the pipe may be closed, which must not end an orderly stop
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {sentence}\n")
        sys.stderr.flush()
