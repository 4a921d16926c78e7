"""The local system: its files and its processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tallystream.errors import ConfigError, TallystreamError
from tallystream_cli.local import state_file
from tallystream_cli.local.state_file import FOLDER_ENV, ComponentState, SystemState
from tallystream_cli.local.supervisor import Command
from tallystream_cli.local.system import LocalSystem


@pytest.fixture
def said() -> list[str]:
    """The sentences of the local system."""
    return []


@pytest.fixture
def system(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> LocalSystem:
    """A local system with two components that are ready at once and run until they are stopped."""
    components = [
        Command(
            name,
            ["/bin/sh", "-c", f"touch {name}.ready; exec sleep 600"],
            log=tmp_path / f"{name}.log",
            ready_file=tmp_path / f"{name}.ready",
        )
        for name in ("one", "two")
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalSystem, "_components", lambda _: components)
    monkeypatch.setattr(LocalSystem, "_prepare", lambda _: None)
    return LocalSystem(tmp_path, say=said.append)


def test_a_state_file_that_can_not_be_written_ends_nothing(
    system: LocalSystem, said: list[str], tmp_path: Path
) -> None:
    """As on a full disk: each failure is one sentence, and every component is stopped in order."""
    system.start()
    path = tmp_path / state_file.NAME
    path.unlink()
    path.mkdir()
    system.stop()
    assert [one.state for one in system.watched] == ["stopped", "stopped"]
    assert [one.component.pid for one in system.watched] == [None, None]
    failure = f"{path} can't be written (Is a directory): correct that; the next change writes it again"
    assert said[-5:] == ["stopping", failure, "two is stopped", failure, "one is stopped"]


@pytest.mark.parametrize("page", [True, False])
def test_the_aggregator_collects_the_lag(tmp_path: Path, page: bool) -> None:
    """It serves the lag where the system says, if there is a page to show it."""
    system = LocalSystem(tmp_path, say=lambda _: None, page=page)
    names = [one.component.name for one in system.watched]
    assert names == ["broker", "aggregate", *(["page"] if page else [])]
    aggregate = system.watched[1].component
    assert isinstance(aggregate, Command)
    words = aggregate._command
    assert ("--lag-port" in words) == page
    if page:
        assert system.api_url.endswith(":" + words[words.index("--lag-port") + 1])


def test_a_first_start_says_that_it_downloads(
    system: LocalSystem, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing would be heard for minutes."""
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path / "cache"))
    system.start()
    system.stop()
    assert said[0].startswith("the broker's jars are downloaded")


PARENT = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', "
    "'import os, signal; print(os.getpid(), flush=True); signal.pause()']).wait()"
)
STATE = SystemState(1, 1.7e9, "127.0.0.1:9092", "local:x.db", components=[ComponentState("aggregate", "up", 2, 7)])


@pytest.mark.parametrize("content", [b"", b"{}", b'{"supervisor":{}}', b'"\xff"', b"[" * 100_000])
def test_a_damaged_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    """The error names the file and what to do."""
    (tmp_path / "system.json").write_bytes(content)
    with pytest.raises(TallystreamError, match=r"system\.json is damaged .* delete it"):
        state_file.read(tmp_path)


def test_a_file_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    """The error names the file and the reason. If the data folder is a file, there is no system."""
    (tmp_path / "system.json").mkdir()
    with pytest.raises(TallystreamError, match=f"{tmp_path}.* can't be read: Is a directory"):
        state_file.read(tmp_path)
    (tmp_path / "lock").mkdir()
    with pytest.raises(TallystreamError, match=f"{tmp_path}.* can't be read: Is a directory"):
        state_file.running(tmp_path)
    file = tmp_path / "file"
    file.touch()
    assert (state_file.read(file), state_file.running(file)) == (None, None)


@pytest.mark.parametrize("name", ["broker", "page"])
def test_a_port_in_use_is_a_clear_error(tmp_path: Path, name: str) -> None:
    """The error has the option and the port, and nothing is started."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        system = LocalSystem(tmp_path, say=lambda _: None, **{f"{name}_port": port})
        with pytest.raises(ConfigError, match=f"--{name}-port: {port} can't be used; it can't be opened"):
            system.start()
    assert {one.state for one in system.watched} == {"waiting"}


def test_a_system_runs_while_its_process_has_the_lock(tmp_path: Path) -> None:
    """A state that a killed system left is of no system. A folder has one system at a time."""
    state_file.write(tmp_path, STATE)
    assert state_file.running(tmp_path) is None
    with state_file.lock(tmp_path):
        assert state_file.running(tmp_path) == STATE
        with pytest.raises(BlockingIOError):
            state_file.lock(tmp_path)
    assert state_file.running(tmp_path) is None


def test_the_remaining_processes_of_a_system_are_killed_with_their_children(tmp_path: Path) -> None:
    """A component's children are found even after the component has died; no process of another system is."""
    (tmp_path / "other").mkdir()
    with parent(tmp_path) as (leader, child), parent(tmp_path / "other") as (other, _):
        assert {one.pid for one in state_file.remaining(tmp_path)} == {leader.pid, child.pid}
        leader.kill()
        leader.wait()
        assert [one.pid for one in state_file.remaining(tmp_path)] == [child.pid]
        assert state_file.kill_remaining(tmp_path) == 1
        assert state_file.remaining(tmp_path) == []
        assert other.poll() is None
        assert state_file.kill_remaining(tmp_path / "other") == 2


@contextmanager
def parent(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """Yield a process of a system and its child, and kill both in the end.

    The child prints its ID: between its start and its first line, Linux shows an empty environment for a moment.
    """
    environment = {**os.environ, FOLDER_ENV: str(folder)}
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        yield process, child
    finally:
        state_file.kill_remaining(folder)
        process.kill()
        process.communicate()
