"""The commands in the folder of a running local system, `status` for programs, and what a machine may lack."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_cli import main
from tallystream_cli.local import record

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.jobs.replay import ReplaySettings
    from tallystream_aggregator.verify.job import VerifySettings
    from tallystream_dashboards.lag.cli import ShowSettings


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["tallystream", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder in which nothing runs, and an environment that names no broker and no store."""
    monkeypatch.chdir(tmp_path)
    for name in ("TALLYSTREAM_STORE", "TALLYSTREAM_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def running(here: Path) -> record.SystemRecord:
    """The record of a local system that this process supervises, in the folder where `up` keeps it."""
    (here / ".tallystream").mkdir()
    store = here / ".tallystream" / "store.db"
    store.touch()
    me = record.process(os.getpid())
    assert me is not None
    components = [record.ComponentRecord("broker", "up", 0, me), record.ComponentRecord("page", "died", 2)]
    known = record.SystemRecord(
        me, "127.0.0.1:45678", f"local:{store}", page_url="http://127.0.0.1:1", up=True, components=components
    )
    record.write(here / ".tallystream" / "system.json", known)
    return known


def test_lag_finds_the_store_of_the_running_system(
    here: Path, running: record.SystemRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --store the local system's is read, and standard error says which."""
    taken: list[ShowSettings] = []
    monkeypatch.setattr("tallystream_dashboards.lag.cli.run", lambda settings: taken.append(settings) or 0)
    assert call(monkeypatch, "lag") == 0
    assert [one.store.spec for one in taken] == [running.store]
    assert capsys.readouterr().err == f"store {running.store}, of the local system in {here / '.tallystream'}\n"
    other = here / "other.db"
    other.touch()
    assert call(monkeypatch, "lag", "--store", f"local:{other}") == 0
    assert taken[-1].store.spec == f"local:{other}"
    assert capsys.readouterr().err == ""


def test_verify_finds_the_broker_of_the_running_system(
    here: Path, running: record.SystemRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --bootstrap-servers the local system's broker is asked, without the login of another one.

    What is given wins; where nothing runs it is localhost:9092.
    """
    taken: list[VerifySettings] = []
    monkeypatch.setattr("tallystream_cli.output.verify.verify", lambda settings, **_: taken.append(settings) or 0)
    monkeypatch.setenv("TALLYSTREAM_KAFKA_SASL_PASSWORD", "of another broker")
    assert call(monkeypatch, "verify") == 0
    assert (taken[-1].bootstrap_servers, taken[-1].kafka) == ("127.0.0.1:45678", {})
    assert capsys.readouterr().err == f"broker 127.0.0.1:45678, of the local system in {here / '.tallystream'}\n"
    assert call(monkeypatch, "verify", "--bootstrap-servers", "kafka:9092") == 0
    assert (taken[-1].bootstrap_servers, len(taken[-1].kafka)) == ("kafka:9092", 1)
    (here / ".tallystream" / "system.json").unlink()
    assert call(monkeypatch, "verify") == 0
    assert taken[-1].bootstrap_servers == "localhost:9092"
    assert capsys.readouterr().err == ""


def test_replay_finds_both(
    here: Path, running: record.SystemRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broker and store of the local system; another broker's sums never go into its store unasked."""
    taken: list[ReplaySettings] = []
    monkeypatch.setattr("tallystream_cli.output.replay.replay", lambda settings: taken.append(settings) or 0)
    assert call(monkeypatch, "replay", "--from", "2026-11-20") == 0
    assert (taken[-1].bootstrap_servers, taken[-1].store.spec) == ("127.0.0.1:45678", running.store)
    assert f"broker 127.0.0.1:45678 and store {running.store}, of the local" in capsys.readouterr().err
    assert call(monkeypatch, "replay", "--from", "2026-11-20", "--bootstrap-servers", "kafka:9092") == 2
    assert capsys.readouterr().err.startswith("--store is not set; ")


@pytest.mark.usefixtures("here", "running")
def test_replay_writes_no_sums_of_the_local_system_to_the_environments_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store in the environment is another system's: then the broker is not taken from the local one."""
    monkeypatch.setenv("TALLYSTREAM_STORE", "local:production.db")
    taken: list[ReplaySettings] = []
    monkeypatch.setattr("tallystream_cli.output.replay.replay", lambda settings: taken.append(settings) or 0)
    assert call(monkeypatch, "replay", "--from", "2026-11-20") == 0
    assert (taken[-1].bootstrap_servers, taken[-1].store.spec) == ("localhost:9092", "local:production.db")


@pytest.mark.parametrize("supervised", [False, True])
def test_without_a_running_system_the_store_has_to_be_named(
    here: Path,
    running: record.SystemRecord,
    supervised: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No system, or one that has ended: one sentence with the option and what starts a system, exit code 2."""
    path = here / ".tallystream" / "system.json"
    if supervised:
        running.supervisor.created -= 1000
        record.write(path, running)
    else:
        path.unlink()
    assert call(monkeypatch, "lag") == 2
    said = capsys.readouterr().err
    assert said.startswith("--store is not set; ")
    assert "tallystream up" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", ["lag", "lag show orders", "page"])
def test_a_store_that_is_not_there_is_an_error(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path where no file is: one sentence with the path and the remedy, exit code 2, and no file is made."""
    assert call(monkeypatch, *command.split(), "--store", "local:typo.db") == 2
    said = capsys.readouterr()
    assert said.err.startswith("--store: 'local:typo.db' can't be used; there is no such file: correct the path, or ")
    assert said.out == ""
    assert list(here.iterdir()) == []


def test_status_as_json(
    here: Path, running: record.SystemRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object with the addresses and every component; also where nothing runs. The exit code is the table's."""
    assert call(monkeypatch, "status", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "data": str(here / ".tallystream"),
        "running": True,
        "up": False,
        "bootstrap_servers": "127.0.0.1:45678",
        "page_url": "http://127.0.0.1:1",
        "store": running.store,
        "components": [
            {"name": "broker", "state": "up", "restarts": 0, "pid": os.getpid()},
            {"name": "page", "state": "died", "restarts": 2, "pid": None},
        ],
    }
    (here / ".tallystream" / "system.json").unlink()
    assert call(monkeypatch, "status", "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["running"], said["up"], said["components"]) == (False, False, [])


@pytest.mark.parametrize("line", ["up", "demo", "aggregate --checkpoint c", "ship --checkpoint c --store local:s.db"])
def test_without_java_a_command_that_needs_it_is_one_sentence(
    line: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No Java on the PATH: what to install, exit code 2, and nothing is made."""
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert call(monkeypatch, *line.split()) == 2
    said = capsys.readouterr().err
    assert said == "java: 'java' can't be used; install Java 17 or 21, or point JAVA_HOME at one.\n"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "aggregate --checkpoint {}",
        "ship --store local:s.db --checkpoint {}",
        "rebuild --checkpoint {}",
        "aggregate --checkpoint c --ready-file {}",
        "page --store local:s.db --ready-file {}",
    ],
)
@pytest.mark.parametrize("reason", ["Not a directory", "Permission denied"])
def test_a_path_that_can_not_be_written_is_one_sentence(
    line: str, reason: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the option, the path, why, and the remedy; exit code 2 before anything is started."""
    (here / "taken").touch()
    (here / "locked").mkdir()
    path = here / ("taken" if reason == "Not a directory" else "locked") / "path"
    if reason == "Permission denied":  # the superuser may write everywhere
        allowed = os.access
        monkeypatch.setattr(os, "access", lambda at, mode: at != path.parent and allowed(at, mode))
    assert call(monkeypatch, *line.format(path).split()) == 2
    option = next(word for word in reversed(line.split()) if word.startswith("--"))
    assert capsys.readouterr().err == (
        f"{option}: '{path}' can't be used; {path.parent} can't be written ({reason}): "
        "give this user the right to write there, or name another path.\n"
    )


def test_another_users_record_is_not_believed(
    here: Path, running: record.SystemRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder like /tmp anyone may leave a record: its store would be sent this user's InfluxDB token."""
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert call(monkeypatch, "lag") == 2
    assert capsys.readouterr().err.startswith("--store is not set; ")


@pytest.mark.parametrize("command", [["verify"], ["replay", "--from", "2026-11-20"]])
def test_the_environments_prefix_is_not_for_the_local_system(
    running: record.SystemRecord, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local system's topics have no prefix; one on the command line is for others on its broker."""
    taken: list[VerifySettings | ReplaySettings] = []
    monkeypatch.setattr("tallystream_cli.output.verify.verify", lambda settings, **_: taken.append(settings) or 0)
    monkeypatch.setattr("tallystream_cli.output.replay.replay", lambda settings: taken.append(settings) or 0)
    monkeypatch.setenv("TALLYSTREAM_TOPIC_PREFIX", "prod-")
    assert call(monkeypatch, *command) == 0
    assert call(monkeypatch, *command, "--topic-prefix", "own-") == 0
    elsewhere = ["--bootstrap-servers", "kafka:9092"] + (["--store", running.store] if command[0] == "replay" else [])
    assert call(monkeypatch, *command, *elsewhere) == 0
    assert [one.topic_prefix for one in taken] == ["", "own-", "prod-"]


def test_a_system_record_that_is_damaged_is_no_running_system(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lag` asks for a store then."""
    (here / ".tallystream").mkdir()
    (here / ".tallystream" / "system.json").write_text("{")
    with pytest.raises(ConfigError, match="--store"):
        main.app(["lag"], standalone_mode=False)
