"""The settings, the display and the JSON output of the demonstration."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_cli.demo.results import Row
from tallystream_cli.demo.run import DemoSettings, Display, as_dict, as_text

if TYPE_CHECKING:
    from pathlib import Path


def test_the_number_of_events() -> None:
    """By default the complete data set three times, with --quick fewer; --events takes precedence."""
    assert DemoSettings().number == 1_010_328
    assert DemoSettings(quick=True).number == 100_000
    assert DemoSettings(quick=True, events=50_000).number == 50_000


def test_too_few_events_are_rejected() -> None:
    """They would all be processed before the kill."""
    with pytest.raises(ConfigError, match="--events: 5"):
        DemoSettings(events=5)


def test_a_folder_that_is_not_empty_is_rejected(tmp_path: Path) -> None:
    """The records of an earlier run would be counted too."""
    (tmp_path / "broker").mkdir()
    with pytest.raises(ConfigError, match="empty folder"):
        DemoSettings(data=tmp_path)


def test_the_display_prints_lines() -> None:
    """Counts are printed at most every five seconds, and only if they changed. The time of a step is measured."""
    now = [0.0]
    out = io.StringIO()
    display = Display(out, clock=lambda: now[0])
    with display.step("Send"):
        for number, at in ((10, 1.0), (20, 6.0), (20, 12.0), (30, 13.0)):
            now[0] = at
            display.count(sent=number)
    assert out.getvalue().splitlines() == ["1. Send", "   sent: 20", "   sent: 30"]
    assert display.durations == [("Send", 13.0)]


@pytest.mark.parametrize("closed", ["terminal", "pipe"])
def test_a_closed_output_is_no_error(closed: str) -> None:
    """The demonstration, and the orderly stop at its end, go on after its terminal or its pipe was closed."""
    other_end, descriptor = os.openpty() if closed == "terminal" else os.pipe()
    os.close(other_end)
    out = os.fdopen(descriptor, "w", encoding="utf-8")
    display = Display(out)
    display.say("Stopping.")
    display.say("Stopped.")
    out.close()  # it writes what is buffered


def test_the_tables() -> None:
    """The object has every row, every step, and whether all rows agree. So does the text."""
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
    assert as_text(table, [("Start", 1.04)], 2.0).splitlines() == [
        "what         value  compared with    value  agrees",
        "events sent      7",
        "processed        7  by the journals      8  NO",
        "",
        "step   seconds",
        "Start  1.0",
        "all    2.0",
        "",
        "Agreement: NOT exact.",
    ]
