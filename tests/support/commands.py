"""Run `tallystream` and uv as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.processes import end
from tallystream.errors import ConfigError
from tallystream_cli import main
from tallystream_cli.servers.process import spawn
from tallystream_dashboards.exit_codes import UNUSABLE

WITHOUT_SPARK = Path(__file__).with_name("without_spark.py")
USE_SPARK = {"aggregate", "up", "demo"}
"""The commands that start Spark."""


def command(*arguments: str, spark: bool = False) -> list[str]:
    """Return the command line of `tallystream` with this interpreter. Only with `spark`, it starts Spark."""
    program = [str(WITHOUT_SPARK)] if arguments[0] in USE_SPARK and not spark else ["-m", "tallystream_cli.main"]
    return [sys.executable, *program, *arguments]


def run(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 300.0,
    folder: Path | None = None,
    spark: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command until it ends. Return its exit code and output.

    `env` is added to this process's environment; `folder` is the command's working directory. `spark` is that of
    `command`.
    """
    return subprocess.run(
        command(*arguments, spark=spark),
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=folder,
    )


def start(
    log: Path, *arguments: str, env: Mapping[str, str] | None = None, spark: bool = False
) -> subprocess.Popen[bytes]:
    """Start a command, with its output appended to `log`. On SIGABRT it writes the stacks of its threads there."""
    return spawn(command(*arguments, spark=spark), log, {"PYTHONFAULTHANDLER": "1", **(env or {})})


@contextmanager
def running(
    log: Path, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 300.0, spark: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends, then stop it with SIGTERM. `returncode` has its exit code.

    Raises:
        AssertionError: it has not ended `timeout` seconds after SIGTERM.
    """
    process = start(log, *arguments, env=env, spark=spark)
    try:
        yield process
    finally:
        end(process, log, timeout)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["tallystream", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def shown(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return the objects that a command prints which reads a store, in a folder. None of its settings is wrong.

    It runs in this process: a test that waits for a number would start many.
    """
    with chdir(folder):
        done = CliRunner().invoke(main.app, [*arguments, "--json"])
    assert not isinstance(done.exception, ConfigError), done.exception
    assert done.exit_code != UNUSABLE or done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def uv(*arguments: str | Path) -> str:
    """Run this environment's uv, offline if its cache has everything, and return its output."""
    program = Path(sys.executable).with_name("uv")
    for mode in (["--offline"], []):
        done = subprocess.run([program, *arguments, *mode], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            return done.stdout
    raise AssertionError(done.stderr)
