"""What the aggregator needs of the machine: files, Java, signals and times."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.malformed import INVALID_TIMES
from tallystream.errors import ConfigError
from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator import files, java
from tallystream_aggregator.jobs.aggregate.settings import parse_start
from tallystream_aggregator.shutdown import SIGNALS, in_threads, stop_on_signals
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.times import parse_time, parse_time_ms
from tallystream_cli.local.system import LocalSystem


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Set a umask with which everybody may read and write new files."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    """Return the permissions of a file or a folder."""
    return f"{path.stat().st_mode & 0o777:o}"


def test_only_the_owner_may_read_a_new_store(tmp_path: Path) -> None:
    """This includes its folder, and the log and the shared memory of SQLite."""
    store = LocalStore(tmp_path / "new" / "store.db")
    store.write([Point("m", {}, {"v": 1}, 10**12)])
    assert mode(tmp_path / "new") == "700"
    files = sorted((tmp_path / "new").iterdir())
    assert [(path.name, mode(path)) for path in files] == [
        ("store.db", "600"),
        ("store.db-shm", "600"),
        ("store.db-wal", "600"),
    ]
    store.close()


def test_an_existing_store_is_restricted_when_it_is_opened(tmp_path: Path) -> None:
    """Its log is restricted, too, also while another process has the store open."""
    path = tmp_path / "store.db"
    first = LocalStore(path)
    first.write([Point("m", {}, {"v": 1}, 10**12)])
    for name in ("store.db", "store.db-shm", "store.db-wal"):
        (tmp_path / name).chmod(0o644)
    second = LocalStore(path)
    second.setup()
    assert {mode(one) for one in tmp_path.iterdir()} == {"600"}
    first.close()
    second.close()


def test_other_files_keep_their_permissions(tmp_path: Path) -> None:
    """These are another program's database, and an existing folder."""
    tmp_path.chmod(0o755)
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    path.chmod(0o644)
    store = LocalStore(path)
    with pytest.raises(ConfigError, match="a database of something else"):
        store.setup()
    assert (mode(path), mode(tmp_path)) == ("644", "755")


def test_only_the_owner_may_read_a_file_that_is_written(tmp_path: Path) -> None:
    """The file of a failed attempt, with wider permissions, is replaced."""
    path = tmp_path / "new" / "secret"
    files.write_file(path, b"one")
    assert (mode(tmp_path / "new"), mode(path)) == ("700", "600")
    path.with_name("secret.new").touch(0o666)
    files.write_file(path, b"two")
    assert (mode(path), path.read_bytes()) == ("600", b"two")


def test_only_the_owner_may_enter_the_folder_of_the_local_system(tmp_path: Path) -> None:
    """It has logs, checkpoints, the broker's data and the store."""
    data = tmp_path / "data"
    data.mkdir(0o755)
    system = LocalSystem(data, say=lambda _: None)
    system._lock_folder()
    assert mode(data) == "700"
    system.stop()


def _java(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    launcher = folder / "jdk" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho '{output}' >&2\n", encoding="utf-8")
    launcher.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder / "jdk"))


@pytest.mark.parametrize(
    ("output", "version"),
    [('openjdk version "17.0.15" 2025-04-15', "17.0.15"), ('java version "21" 2023-09-19', "21")],
)
def test_java_17_and_21_are_accepted(
    output: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version may have a minor version or not."""
    _java(tmp_path, monkeypatch, output)
    assert java.version() == version


@pytest.mark.parametrize("output", ['openjdk version "1.8.0_392"', 'openjdk version "11.0.2"', "no Java at all"])
def test_another_java_is_rejected(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the output of Java, and names what to install."""
    _java(tmp_path, monkeypatch, output)
    with pytest.raises(ConfigError, match="install Java 17 or 21") as raised:
        java.version()
    assert output in str(raised.value)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_the_process(number: signal.Signals) -> None:
    """The first one sets the request. After the block the earlier handlers are restored."""
    before = {each: signal.getsignal(each) for each in SIGNALS}
    with stop_on_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
        assert stop.wait(60)
        assert signal.getsignal(number) is signal.SIG_DFL
        (other,) = set(SIGNALS) - {number}
        assert signal.getsignal(other) == stop._on_signal
    assert {each: signal.getsignal(each) for each in SIGNALS} == before


def test_a_time_without_an_offset_is_in_utc() -> None:
    """Milliseconds are exact."""
    assert parse_time_ms("2026-11-20T03:12") == parse_time_ms("2026-11-20T04:12+01:00") == 1_795_144_320_000
    assert [parse_time_ms(f"2026-11-20T03:12:00.{ms:03}") % 1000 for ms in range(1000)] == list(range(1000))
    assert parse_time("2026-11-20T04:12+01:00").isoformat() == "2026-11-20T03:12:00+00:00"


@pytest.mark.parametrize("text", ["noon", "", *INVALID_TIMES])
def test_an_invalid_time_is_rejected(text: str) -> None:
    """It is not a time, or out of the range of stores and brokers."""
    with pytest.raises(ValueError, match=r"."):
        parse_time(text)
    with pytest.raises(ConfigError, match="--from"):
        parse_start(text)


def test_what_runs_beside_a_block_ends_with_it() -> None:
    """The end of the block stops it, and waits for it. The stop of the program is not set."""
    stop, ended = SignalSafeEvent(), list[bool]()
    functions = dict.fromkeys(("one", "other"), lambda end: ended.append(end.wait(30)))
    with in_threads(functions, stop):
        assert ended == []
    assert ended == [True, True]
    assert not stop.is_set()


@pytest.mark.parametrize("error", [ConfigError("--store", "local:x", "name another file"), SystemExit("--store")])
def test_an_error_of_what_runs_beside_a_block_ends_the_program(error: BaseException) -> None:
    """As wrong settings of the store: the stop is set, and the end of the block raises the error."""

    def fail(_: SignalSafeEvent) -> None:
        raise error

    stop = SignalSafeEvent()
    with pytest.raises(type(error), match="--store"), in_threads({"work": fail}, stop):
        assert stop.wait(30)
