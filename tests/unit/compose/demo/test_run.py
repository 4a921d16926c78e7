"""The demonstration's settings and its display."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tallystream.errors import ConfigError
from tallystream_cli.demo.display import Display
from tallystream_cli.demo.results import Row
from tallystream_cli.demo.run import DemoSettings, as_dict

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


def test_the_tables_as_json() -> None:
    """Every row and every step, and whether all of it agrees."""
    table = [Row("events sent", "7"), Row("processed", "7", "by the journals", "8", False)]
    assert as_dict(table, [("Start", 1.04)], 2.0) == {
        "exact": False,
        "rows": [
            {"what": "events sent", "value": "7", "against": "", "other": "", "agrees": None},
            {"what": "processed", "value": "7", "against": "by the journals", "other": "8", "agrees": False},
        ],
        "steps": [{"step": "Start", "seconds": 1.0}],
        "seconds": 2.0,
    }


def test_progress_goes_where_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json standard output has the object alone."""
    Display(100, ("sent",), to=sys.stderr).say("Send")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "Send\n")
