"""Processes that end while a test lists, asks or kills them."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from support import processes
from support.spark_jobs import SparkJob
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARENT = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no child stays as a zombie
children = [subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) for _ in range(2)]
while True:
    signal.pause()
"""

LIST_CHILDREN = psutil.Process.children


@pytest.fixture
def ended_child(monkeypatch: pytest.MonkeyPatch) -> list[psutil.Process]:
    """The first child of each list of children ends when the list has been made, and is collected here."""
    ended = []

    def children(process: psutil.Process, *args: Any, **more: Any) -> list[psutil.Process]:
        found = LIST_CHILDREN(process, *args, **more)
        found[0].kill()
        found[0].wait(60)
        ended.append(found[0])
        return found

    monkeypatch.setattr(psutil.Process, "children", children)
    return ended


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A process with two children."""
    with subprocess.Popen([sys.executable, "-c", PARENT]) as process:
        wait_until(lambda: len(running_children(process.pid)) == 2, 60, "it has children")
        yield process
        process.kill()


def running_children(pid: int) -> list[psutil.Process]:
    """Return the children of a process, also while the fixture above is active."""
    return LIST_CHILDREN(psutil.Process(pid))


def test_a_spark_job_is_killed_though_a_child_has_ended_by_then(
    tmp_path: Path, ended_child: list[psutil.Process]
) -> None:
    """The other processes of the job are killed, too."""
    job = SparkJob(["python", "-c", PARENT], tmp_path, {})
    job.start()
    assert job._process is not None
    pid = job._process.pid
    wait_until(lambda: len(running_children(pid)) == 2, 60, "it has children")
    left = running_children(pid)
    job.kill()
    assert job.ended
    assert ended_child
    assert not any(one.is_running() for one in left)
    job.kill()


def test_a_process_that_has_ended_by_then_is_killed_with_its_tree(parent: subprocess.Popen[bytes]) -> None:
    """A process whose exit code was read is gone for psutil. Nothing is raised, and nothing else is killed."""
    left = running_children(parent.pid)
    parent.kill()
    parent.wait()
    try:
        processes.kill_tree(parent)
        assert all(one.is_running() for one in left)
    finally:
        processes.send(left, signal.SIGKILL)


def test_a_process_that_has_ended_by_then_has_no_name(
    parent: subprocess.Popen[bytes], ended_child: list[psutil.Process]
) -> None:
    """It is left out when processes are selected by name, and the others are found."""
    name = running_children(parent.pid)[0].name()
    tree = processes.tree(parent.pid)
    assert processes.named(tree, name) == [one for one in tree if one not in ended_child]
    processes.kill_tree(parent)
