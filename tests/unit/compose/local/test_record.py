"""The record from which `status` and `down` know the system, over real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from support.wait import wait_until
from tallystream.errors import TallystreamError
from tallystream_cli.local import record
from tallystream_cli.local.record import ComponentRecord, Process, SystemRecord

if TYPE_CHECKING:
    from pathlib import Path

WITH_CHILD = (
    "import signal, subprocess, sys; "
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
    "print(child.pid, flush=True); signal.pause()"
)


def system(led: Process | None) -> SystemRecord:
    """Return the record of a system of one component."""
    me = record.process(os.getpid())
    assert me is not None
    return SystemRecord(me, "127.0.0.1:9092", "local:x.db", components=[ComponentRecord("sums", "up", 2, led)])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The record survives its file; where there is no file, nothing was started."""
    path = tmp_path / "system.json"
    assert record.read(path) is None
    written = system(Process(1, 2.5))
    record.write(path, written)
    assert record.read(path) == written


@pytest.mark.parametrize("content", [b"", b"{}", b'{"supervisor":1}', b'"\xff"', b"[" * 100_000])
def test_a_damaged_record_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    """It names the file and what to do; nothing is taken for a system that runs."""
    path = tmp_path / "system.json"
    path.write_bytes(content)
    with pytest.raises(TallystreamError, match=r"system\.json is damaged .*; delete it"):
        record.read(path)


def test_an_id_that_went_to_another_process_is_not_ours() -> None:
    """A process counts as alive only with its time of creation, and not when it has ended."""
    me = record.process(os.getpid())
    assert me is not None
    assert me.alive()
    assert not Process(me.pid, me.created - 60).alive()
    with subprocess.Popen([sys.executable, "-c", ""]) as short:
        wait_until(lambda: psutil.Process(short.pid).status() == psutil.STATUS_ZOMBIE, 30, "it has ended")
        ended = record.process(short.pid)
        assert ended is not None
        assert not ended.alive()
    assert record.process(short.pid) is None


def test_what_a_killed_supervisor_left_is_ended_with_its_children() -> None:
    """A component's children are found when the component itself has died; nobody else's process is."""
    with subprocess.Popen([sys.executable, "-c", WITH_CHILD], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        child = psutil.Process(int(leader.stdout.readline()))
        led = record.process(leader.pid)
        known = system(led)
        assert {one.pid for one in record.left_over(known)} == {leader.pid, child.pid}
        leader.kill()
    assert {one.pid for one in record.left_over(known)} == {child.pid}
    assert record.end_left_over(known) == 1
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 30, "the child has ended")
    assert record.left_over(known) == []


def test_a_reused_id_ends_nobody() -> None:
    """Where a component's ID belongs to a younger process now, that one is left in peace."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True) as stranger:
        now = record.process(stranger.pid)
        assert now is not None
        assert record.end_left_over(system(Process(now.pid, now.created - 60))) == 0
        assert now.alive()
        stranger.kill()
