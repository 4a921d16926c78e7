"""A command as a component: its ready file, its log and its environment."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from support.wait import wait_until
from tallystream_cli.local.component import Command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

READY = "import pathlib, sys, time; print('hello'); pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"


def make(tmp_path: Path, script: str, **options: object) -> Command:
    ready_file = tmp_path / "ready"
    arguments = [sys.executable, "-c", script, str(ready_file)]
    return Command("part", arguments, log=tmp_path / "logs" / "part.log", ready_file=ready_file, **options)  # type: ignore[arg-type]


def gone(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def begin(command: Command) -> int:
    """Start the command, wait until it is ready, and return its process ID."""
    command.begin()
    wait_until(command.ready, 60, "the component is ready")
    assert command.pid is not None
    return command.pid


def test_a_command_is_ready_when_its_ready_file_exists(tmp_path: Path) -> None:
    """The file of an earlier run is removed at the start; the output is in the log; after `stop` no process runs."""
    (tmp_path / "ready").touch()
    command = make(tmp_path, "import time; time.sleep(600)")
    command.begin()
    assert not command.ready()
    command.stop()
    command = make(tmp_path, "print('hello', flush=True);" + READY)
    pid = begin(command)
    assert command.poll() is None
    assert "hello" in command.last_output()
    assert str(tmp_path / "logs" / "part.log") in command.last_output()
    command.stop()
    command.stop()
    assert command.pid is None
    assert gone(pid)


def test_the_environment_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are added to the environment of this process; None removes one."""
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("REMOVED", "removed")
    script = "import os; print(os.getenv('KEPT'), os.getenv('REMOVED'), os.getenv('ADDED'), flush=True);" + READY
    command = make(tmp_path, script, env={"REMOVED": None, "ADDED": "added"})
    begin(command)
    command.stop()
    assert "kept None added" in command.last_output()
