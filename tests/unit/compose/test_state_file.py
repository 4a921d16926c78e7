"""The state file of a local system, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from support.wait import wait_until
from tallystream.errors import TallystreamError
from tallystream_cli.local import state_file
from tallystream_cli.local.state_file import ComponentState, Process, SystemState

if TYPE_CHECKING:
    from pathlib import Path

PARENT = (
    "import signal, subprocess, sys; "
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
    "print(child.pid, flush=True); signal.pause()"
)

linux = pytest.mark.skipif(not state_file.PROC.exists(), reason="without /proc, times are of the wall clock")


def system(process: Process | None) -> SystemState:
    """Return the state of a system with one component."""
    supervisor = state_file.find_process(os.getpid())
    assert supervisor is not None
    component = ComponentState("aggregate", "up", 2, process)
    return SystemState(supervisor, "127.0.0.1:9092", "local:x.db", components=[component])


def test_a_written_state_is_read_back(tmp_path: Path) -> None:
    """Without a file there is no state; otherwise the state is that which was written."""
    path = tmp_path / "system.json"
    assert state_file.read(path) is None
    written = system(Process(1, 2.5, "a boot"))
    state_file.write(path, written)
    assert state_file.read(path) == written


@pytest.mark.parametrize("content", [b"", b"{}", b'{"supervisor":1}', b'"\xff"', b"[" * 100_000])
def test_a_damaged_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    """The error names the file and what to do."""
    path = tmp_path / "system.json"
    path.write_bytes(content)
    with pytest.raises(TallystreamError, match=r"system\.json is damaged .*; delete it"):
        state_file.read(path)


def test_a_file_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    """The error names the file and the reason. If the data folder is a file, there is no system."""
    with pytest.raises(TallystreamError, match=f"{tmp_path} can't be read: Is a directory"):
        state_file.read(tmp_path)
    file = tmp_path / "file"
    file.touch()
    assert state_file.read(file / "system.json") is None


def test_a_process_is_alive_only_with_its_creation_time() -> None:
    """A process with another creation time, a zombie and an unknown ID are not alive."""
    this = state_file.find_process(os.getpid())
    assert this is not None
    assert this.alive()
    assert not Process(this.pid, this.created - 60, this.boot).alive()
    assert not Process(this.pid, this.created, "of an earlier boot").alive()
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, 30, "it has ended")
        ended = state_file.find_process(child.pid)
        assert ended is not None
        assert not ended.alive()
    assert state_file.find_process(child.pid) is None


def test_the_remaining_processes_of_a_system_are_killed_with_their_children() -> None:
    """A component's children are found even after the component has died; no other process is."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        child = psutil.Process(int(leader.stdout.readline()))
        state = system(state_file.find_process(leader.pid))
        assert {one.pid for one in state_file.remaining(state)} == {leader.pid, child.pid}
        leader.kill()
    assert {one.pid for one in state_file.remaining(state)} == {child.pid}
    assert state_file.kill_remaining(state) == 1
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 30, "the child has ended")
    assert state_file.remaining(state) == []


def test_a_process_with_a_reused_id_is_not_killed() -> None:
    """If a younger process has the ID of a component, it keeps running."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True) as other:
        process = state_file.find_process(other.pid)
        assert process is not None
        assert state_file.kill_remaining(system(Process(process.pid, process.created - 60, process.boot))) == 0
        assert process.alive()
        other.kill()


@linux
def test_a_change_of_the_wall_clock_changes_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a system are also found after the clock was set, as when a suspended virtual machine resumes."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True) as leader:
        state = system(state_file.find_process(leader.pid))
        created_at = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: created_at(process) + 3600)
        alive, found = state.supervisor.alive(), state_file.remaining(state)
        leader.kill()
    assert alive
    assert [one.pid for one in found] == [leader.pid]


@linux
def test_nothing_remains_after_a_restart_of_the_machine() -> None:
    """A process whose session has the ID of a component from before the restart is not killed."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        child = psutil.Process(int(leader.stdout.readline()))
        leader.kill()
    found = state_file.remaining(system(Process(leader.pid, 1.0, "of an earlier boot")))
    child.kill()
    assert found == []


def test_without_proc_a_process_is_known_by_its_time_of_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no /proc, times that differ by less than two seconds belong to the same process."""
    monkeypatch.setattr(state_file, "PROC", tmp_path)
    this = state_file.find_process(os.getpid())
    assert this == Process(os.getpid(), psutil.Process().create_time())
    assert Process(this.pid, this.created - 1).alive()
    assert not Process(this.pid, this.created - 3).alive()
