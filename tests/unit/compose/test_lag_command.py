"""`tallystream lag`: the default command of its group, and --at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from support.lag import Rounds, group, round_of
from support.malformed import INVALID_TIMES
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_cli import main
from tallystream_cli import options as o

if TYPE_CHECKING:
    from pathlib import Path

AT_MS = 1_795_168_800_000
"""2026-11-20T10:00 UTC in epoch ms"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A store in which the group `billing` has stopped with a lag of 880 records at ten o'clock."""
    store = LocalStore(tmp_path / "store.db", retention_ms=0)
    store.setup()
    rounds = Rounds()
    for ago in range(300, -1, -2):
        end = 9_900 - ago * 10
        store.write(rounds.points(round_of(group("billing", (min(9_020, end), end), members=0)), AT_MS - ago * 1000))
    store.close()
    return f"local:{tmp_path / 'store.db'}"


@pytest.mark.parametrize("words", [["lag"], ["lag", "billing"], ["lag", "show", "billing"]])
def test_show_is_the_default_command(spec: str, words: list[str]) -> None:
    """`lag`, `lag GROUP` and `lag show GROUP` are the same command; the exit code for a stopped group is 2."""
    shown = CliRunner().invoke(main.app, [*words, "--store", spec, "--at", "2026-11-20T10:00"])
    assert "billing" in shown.stdout
    assert "ERR" in shown.stdout
    assert shown.exit_code == 2


@pytest.mark.parametrize("text", ["2026-11-20T10:00", "2026-11-20T12:00+02:00"])
def test_a_time_without_an_offset_is_in_utc(text: str) -> None:
    """It does not depend on the time zone of the machine."""
    assert o.at_ms(text) == AT_MS


@pytest.mark.parametrize("text", ["noon", *INVALID_TIMES])
def test_an_invalid_time_is_rejected(text: str) -> None:
    """The error names the option and the value."""
    with pytest.raises(ConfigError, match=rf"^--at: '{re.escape(text)}'"):
        o.at_ms(text)
