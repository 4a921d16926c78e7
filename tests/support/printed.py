"""What the commands in the terminal print."""

from __future__ import annotations

import io
import re

from tallystream_dashboards.terminal.show import TableSettings, show

NOW_MS = 1_700_000_000_000
"""The time at which the commands run, epoch ms."""


def printed(settings: TableSettings, *, now_ms: int = NOW_MS) -> tuple[int, list[str]]:
    """Run a command, and return its exit code and its lines."""
    out = io.StringIO()
    return show(settings, out, clock=lambda: now_ms / 1000), out.getvalue().splitlines()


def cells(line: str) -> list[str]:
    """Return the cells of a line."""
    return re.split("  +", line.strip())
