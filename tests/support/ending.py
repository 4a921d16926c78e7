"""End a process as an operator does; one that does not end says where it stands, and is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def with_stacks(env: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the environment, and `env`, in which a Python process that is aborted writes its threads' stacks."""
    return {**os.environ, **(env or {}), "PYTHONFAULTHANDLER": "1"}


def end(process: subprocess.Popen[bytes], log: Path, timeout: float) -> int:
    """Send SIGTERM unless it has ended, and return its exit code.

    Raises:
        AssertionError: after `timeout` seconds it was still there; says what its log, `log`, has: the stacks, too.
    """
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        _abort(process)
        raise AssertionError(f"it did not end within {timeout:g} s of SIGTERM\n{log.read_text()[-50_000:]}") from error


def _abort(process: subprocess.Popen[bytes]) -> None:
    for child in psutil.Process(process.pid).children():
        if child.name() == "java":
            child.send_signal(signal.SIGQUIT)  # a JVM writes its threads' stacks, and goes on
            psutil.wait_procs([child], 2)
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(30)
    finally:
        process.kill()
        process.wait()
