"""The demonstration's settings and its display."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tallystream.compose.demo.display import Display
from tallystream.compose.demo.run import DemoSettings
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_number_of_events() -> None:
    """The whole data set three times over, fewer when quick, and what is asked for wins."""
    assert DemoSettings().number == 1_010_328
    assert DemoSettings(quick=True).number == 100_000
    assert DemoSettings(quick=True, events=50_000).number == 50_000


def test_a_number_out_of_bounds_is_refused() -> None:
    """Too few events would be processed before the kill."""
    with pytest.raises(ConfigError, match="--events: 5"):
        DemoSettings(events=5)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    """What an earlier run left there would be counted too."""
    (tmp_path / "broker").mkdir()
    with pytest.raises(ConfigError, match="empty folder"):
        DemoSettings(data=tmp_path)


def test_without_a_terminal_the_display_prints_plain_lines() -> None:
    """Counts come every five seconds at most, and only when they moved; steps are timed by the clock."""
    now = [0.0]
    out = io.StringIO()
    display = Display(100, ("sent",), console=Console(file=out, width=80), clock=lambda: now[0])
    with display, display.step("Send"):
        for number, at in ((10, 1.0), (20, 6.0), (20, 12.0), (30, 13.0)):
            now[0] = at
            display.count("sent", number)
    assert out.getvalue().splitlines() == ["1. Send", "   sent: 20", "   sent: 30"]
    assert display.took == [("Send", 13.0)]
