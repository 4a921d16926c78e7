"""A server's process: how it is started, and what a signal in that moment does."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPTED = """
import os, signal, sys
from pathlib import Path
import psutil
from tallystream_cli.local.interrupts import Interrupts
from tallystream_cli.servers.process import spawn

def signalled(): os.kill(os.getpid(), signal.{number})

os.register_at_fork(after_in_parent=signalled, after_in_child=signalled)
with Interrupts().installed():
    try:
        spawn([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
    except KeyboardInterrupt:
        print("interrupted, left:", psutil.Process().children())
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_in_the_moment_of_the_fork_is_neither_lost_nor_printed(tmp_path: Path, number: str) -> None:
    """Parent and child get it inside the fork's callbacks: it is raised once, after the start, and nothing is left."""
    code = INTERRUPTED.format(number=number)
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "log")], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.stdout, run.stderr) == ("interrupted, left: []\n", "")
    assert (tmp_path / "log").read_text() == ""
