"""Programs in an interpreter of their own: what they import, and how they fork and end, affects no other test."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping


def run_program(program: str, *options: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program, with options of Python and more environment variables, and return what it prints.

    Raises:
        AssertionError: the program fails.
    """
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
