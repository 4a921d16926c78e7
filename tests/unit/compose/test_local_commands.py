"""The commands with a local system in the current folder, `status --json`, and errors of the machine."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import msgspec
import psutil
import pytest

from support.commands import call
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_cli.local import state_file
from tallystream_cli.local.state_file import ComponentState
from tallystream_dashboards.terminal.lag import ShowSettings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and an environment that names no broker and no store."""
    monkeypatch.chdir(tmp_path)
    for name in ("TALLYSTREAM_STORE", "TALLYSTREAM_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def running(here: Path) -> Iterator[state_file.SystemState]:
    """A local system that this process supervises, in the default folder of `up`."""
    (here / ".tallystream").mkdir()
    store = here / ".tallystream" / "store.db"
    store.touch()
    components = [ComponentState("broker", "up", 0, os.getpid()), ComponentState("page", "died", 2)]
    started = psutil.Process().create_time()
    state = state_file.SystemState(
        os.getpid(),
        started,
        "127.0.0.1:45678",
        f"local:{store}",
        page_url="http://127.0.0.1:1",
        api_url="http://127.0.0.1:2",
        up=True,
        components=components,
    )
    state_file.write(here / ".tallystream", state)
    with state_file.lock(here / ".tallystream"):
        yield state


def test_lag_finds_the_store_of_the_running_system(
    here: Path, running: state_file.SystemState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --store the store of the local system is read, and standard error says so."""
    used: list[ShowSettings] = []
    monkeypatch.setattr("tallystream_dashboards.terminal.show.show", lambda settings: used.append(settings) or 0)
    assert call(monkeypatch, "lag") == 0
    assert [one.store.spec for one in used] == [running.store]
    assert capsys.readouterr().err == f"store {running.store}, of the local system in {here / '.tallystream'}\n"
    other = here / "other.db"
    other.touch()
    assert call(monkeypatch, "lag", "--store", f"local:{other}") == 0
    assert used[-1].store.spec == f"local:{other}"
    assert capsys.readouterr().err == ""


def test_verify_finds_the_broker_of_the_running_system(
    here: Path, running: state_file.SystemState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --bootstrap-servers the broker of the local system is used, without another system's login and prefix.

    --bootstrap-servers takes precedence. If no system runs, the default is localhost:9092.
    """
    used: list[Cluster] = []
    monkeypatch.setattr("tallystream_cli.commands.verify.check", lambda settings, **_: used.append(settings) or 0)
    monkeypatch.setenv("TALLYSTREAM_KAFKA_SASL_PASSWORD", "of another broker")
    monkeypatch.setenv("TALLYSTREAM_TOPIC_PREFIX", "prod-")
    assert call(monkeypatch, "verify") == 0
    assert used[-1] == Cluster("127.0.0.1:45678", "", {})
    assert capsys.readouterr().err == f"broker 127.0.0.1:45678, of the local system in {here / '.tallystream'}\n"
    assert call(monkeypatch, "verify", "--bootstrap-servers", "kafka:9092") == 0
    assert used[-1] == Cluster("kafka:9092", "prod-", {"sasl.password": "of another broker"})
    assert call(monkeypatch, "verify", "--topic-prefix", "own-") == 0
    assert used[-1].topic_prefix == "own-"
    capsys.readouterr()
    (here / ".tallystream" / "system.json").unlink()
    assert call(monkeypatch, "verify") == 0
    assert used[-1].bootstrap_servers == "localhost:9092"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", [None, "{}", "{"], ids=["none", "of a killed system", "damaged"])
def test_without_a_running_system_a_store_is_required(
    here: Path, content: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If no system runs, the error names the option and how to start a system; the exit code is 2."""
    if content is not None:
        (here / ".tallystream").mkdir()
        (here / ".tallystream" / "system.json").write_text(content)
    assert call(monkeypatch, "lag") == 2
    output = capsys.readouterr().err
    assert output.startswith("--store is not set; ")
    assert "tallystream up" in output
    assert output.count("\n") == 1


@pytest.mark.parametrize("command", ["lag", "lag show orders", "page"])
def test_a_local_store_that_does_not_exist_is_an_error(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the path and the remedy, the exit code is 2, and no file is created."""
    assert call(monkeypatch, *command.split(), "--store", "local:typo.db") == 2
    output = capsys.readouterr()
    assert output.err.startswith("--store: 'local:typo.db' can't be used; there is no such file: correct the path, or ")
    assert output.out == ""
    assert list(here.iterdir()) == []


def test_status_as_json(
    here: Path, running: state_file.SystemState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The object has the addresses and every component, also if no system runs. The exit code is the same."""
    assert call(monkeypatch, "status", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "data": str(here / ".tallystream"),
        "running": True,
        "up": False,
        "bootstrap_servers": "127.0.0.1:45678",
        "page_url": "http://127.0.0.1:1",
        "api_url": "http://127.0.0.1:2",
        "store": running.store,
        "components": [
            {"name": "broker", "state": "up", "restarts": 0, "pid": os.getpid()},
            {"name": "page", "state": "died", "restarts": 2, "pid": None},
        ],
    }
    (here / ".tallystream" / "system.json").unlink()
    assert call(monkeypatch, "status", "--json") == 1
    output = json.loads(capsys.readouterr().out)
    assert (output["running"], output["up"], output["components"]) == (False, False, [])


def test_status_prints_the_addresses(
    running: state_file.SystemState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last lines have the broker, the store, the page, and a path of the JSON over HTTP."""
    assert call(monkeypatch, "status") == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"broker 127.0.0.1:45678, store {running.store}",
        "page http://127.0.0.1:1, JSON http://127.0.0.1:2/v1/problems",
    ]


@pytest.mark.parametrize("line", ["up", "demo", "aggregate --checkpoint c"])
def test_without_java_a_command_that_needs_it_fails(
    line: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says what to install, the exit code is 2, and no file is created."""
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert call(monkeypatch, *line.split()) == 2
    output = capsys.readouterr().err
    assert output == "java: 'java' can't be used; install Java 17 or 21, or point JAVA_HOME at one.\n"
    assert list(here.iterdir()) == []


@pytest.fixture
def closed_terminal() -> Iterator[TextIO]:
    """A terminal to which every write fails, as after its window was closed."""
    other_end, descriptor = os.openpty()
    os.close(other_end)
    terminal = os.fdopen(descriptor, "w", encoding="utf-8")
    yield terminal
    with contextlib.suppress(OSError):  # it writes what is buffered
        terminal.close()


@pytest.mark.usefixtures("here")
def test_up_stops_everything_after_its_terminal_was_closed(
    closed_terminal: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A progress line that can't be written ends neither the start nor the stop."""
    done: list[str] = []

    class System:
        """A local system whose start is interrupted."""

        def __init__(
            self, _: object, *, say: Callable[[str], None], check: Callable[[], None], **_options: object
        ) -> None:
            self.say, self.check = say, check

        def start(self) -> None:
            """Start, until SIGTERM."""
            self.say("broker is up")
            done.append("started")
            os.kill(os.getpid(), signal.SIGTERM)
            self.check()

        def stop(self) -> None:
            """Stop."""
            self.say("stopping")
            done.append("stopped")

    monkeypatch.setattr("tallystream_cli.local.system.LocalSystem", System)
    monkeypatch.setattr(sys, "stderr", closed_terminal)
    monkeypatch.setattr("tallystream_cli.logs.configure", lambda *_: None)  # the log handlers of this process are kept
    assert call(monkeypatch, "up") == 0
    assert done == ["started", "stopped"]


@pytest.mark.parametrize(
    "line",
    [
        "aggregate --checkpoint {}",
        "ship --store local:s.db --ready-file {}",
        "aggregate --checkpoint c --ready-file {}",
        "page --store local:s.db --ready-file {}",
    ],
)
@pytest.mark.parametrize("reason", ["Not a directory", "Permission denied"])
def test_a_path_that_cannot_be_written_is_an_error(
    line: str, reason: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the option, the path, the reason and the remedy; nothing is started."""
    (here / "file").touch()
    (here / "locked").mkdir()
    path = here / ("file" if reason == "Not a directory" else "locked") / "path"
    if reason == "Permission denied":  # root can write everywhere
        allowed = os.access
        monkeypatch.setattr(os, "access", lambda at, mode: at != path.parent and allowed(at, mode))
    assert call(monkeypatch, *line.format(path).split()) == 2
    option = next(word for word in reversed(line.split()) if word.startswith("--"))
    assert capsys.readouterr().err == (
        f"{option}: '{path}' can't be used; {path.parent} can't be written ({reason}): "
        "allow this user to write there, or name another path.\n"
    )


@pytest.mark.parametrize("command", ["aggregate --checkpoint c", "ship", "lag collect", "page"])
def test_the_ready_file_of_an_earlier_run_is_removed_at_the_start(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A supervisor would take the command for ready at once. A file of the user's, which is not empty, stays."""
    monkeypatch.setattr("tallystream_cli.options.require_spark", lambda: None)
    words = [*command.split(), "--store", "unknown:", "--ready-file"]
    ready = here / "ready"
    ready.touch()
    assert call(monkeypatch, *words, str(ready)) == 2
    assert not ready.exists()
    assert call(monkeypatch, *words, str(ready)) == 2
    assert call(monkeypatch, *words, "/dev/null") == 2
    ready.write_text("of the user", encoding="utf-8")
    assert call(monkeypatch, *words, str(ready)) == 2
    assert ready.exists()
    assert capsys.readouterr().err.count("--store: 'unknown:' can't be used") == 4


def test_a_ready_file_that_cannot_be_removed_is_an_error(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the folder that this user must be allowed to write."""

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    (here / "ready").touch()
    assert call(monkeypatch, "ship", "--store", "local:s.db", "--ready-file", str(here / "ready")) == 2
    assert capsys.readouterr().err == (
        f"--ready-file: '{here / 'ready'}' can't be used; it is of an earlier run and can't be removed "
        "(Permission denied): allow this user to write its folder, or name another path.\n"
    )


def test_down_signals_no_process_that_has_the_supervisors_id_by_now(
    here: Path, running: state_file.SystemState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a host whose container has the system: process IDs differ there."""
    state_file.write(here / ".tallystream", msgspec.structs.replace(running, started=running.started - 3600))
    assert call(monkeypatch, "down") == 1
    assert "is not its supervisor; run down where up was started" in capsys.readouterr().err


def test_a_state_file_of_another_user_is_ignored(
    here: Path, running: state_file.SystemState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder like /tmp anyone could name a store to which this user's InfluxDB token would be sent."""
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert call(monkeypatch, "lag") == 2
    assert capsys.readouterr().err.startswith("--store is not set; ")
