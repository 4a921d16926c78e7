"""The commands of docs/first-steps.md, in an empty folder, with an environment of their own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.guides import blocks, commands
from support.wheels import ROOT, download_dependencies
from tallystream_cli.servers import jars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

PAGE = "../first-steps"
FREE_PORTS = ("--broker-port", "0", "--page-port", "0")


class Machine:
    """A folder with the page's program, in which the page's commands run with the packages of this repository."""

    def __init__(self, folder: Path, packages: list[Path]) -> None:
        self.folder = folder
        python = Path(sys._base_executable)  # the one without an environment
        # Where no bytecode is written, each process would compile all that it imports again.
        unset = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in unset},
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_NO_COMPILE": "1",  # most modules of PySpark and Streamlit are not imported here
            "PIP_FIND_LINKS": " ".join(map(str, packages)),
        }

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900, check=False
        )

    def system(self) -> dict[str, str]:
        """Return the record of the running system, with its addresses."""
        record: dict[str, str] = json.loads((self.folder / ".tallystream" / "system.json").read_bytes())
        return record


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Machine]:
    """A machine without an environment. What was started is stopped, and the large environment is deleted."""
    began = time.monotonic()
    packages = [download_dependencies()]
    jars.fetch("broker")
    with capsys.disabled():
        sys.stdout.write(f"\n{time.monotonic() - began:7.1f} s  downloads\n")
    folder = tmp_path / "empty"
    folder.mkdir()
    machine = Machine(folder, packages)
    try:
        yield machine
    finally:
        if (folder / ".tallystream").exists():
            down = machine.run([".venv/bin/tallystream", "down"])
            assert down.returncode == 0, down.stderr
        shutil.rmtree(folder)


def test_six_commands_lead_to_a_sum(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """The printed commands show the application's sum, and verify agrees.

    The seconds are printed.
    """
    (program,) = blocks(PAGE, "python")
    (machine.folder / "orders.py").write_text(program, encoding="utf-8")
    *before, last = printed = commands(PAGE)
    assert len(printed) == 6
    total = 0.0

    def passed(step: str, began: float) -> None:
        nonlocal total
        seconds = time.monotonic() - began
        total += seconds
        with capsys.disabled():
            sys.stdout.write(f"{seconds:7.1f} s  {step}\n")

    for words in before:
        if "clone" in words:
            words[2:] = [str(ROOT), "tallystream"]
        began = time.monotonic()
        done = machine.run([*words, *(FREE_PORTS if "up" in words else ())])
        assert done.returncode == 0, done.stdout + done.stderr
        passed(shlex.join(words), began)
        if "up" in words:
            machine.environment["TALLYSTREAM_BOOTSTRAP_SERVERS"] = machine.system()["bootstrap_servers"]
    began = time.monotonic()
    last[-1] = "120"  # seconds to wait
    done = machine.run(last)
    assert done.returncode == 0, done.stdout + done.stderr
    row = done.stdout.splitlines()[1].split()
    assert row[:4] == ["shop", "orders.placed", "counter", "1,000"]
    passed(shlex.join(last), began)
    passed("together, after downloads", time.monotonic() - total)
    verified = machine.run([".venv/bin/tallystream", "verify"])
    assert verified.returncode == 0, verified.stdout + verified.stderr
