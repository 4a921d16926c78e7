"""`tallystream lag`: the default command of its group, and the moment it looks at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from support.invalid_times import INVALID_TIMES
from support.lag import Rounds, group, round_of
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
    """A store in which `billing` is 880 records behind and commits no more, at ten o'clock."""
    store = LocalStore(tmp_path / "store.db", retention_ms=0)
    store.setup()
    rounds = Rounds()
    for ago in range(300, -1, -2):
        end = 9_900 - ago * 10
        store.write(rounds.points(round_of(group("billing", (min(9_020, end), end), members=0)), AT_MS - ago * 1000))
    store.close()
    return f"local:{tmp_path / 'store.db'}"


@pytest.mark.parametrize("words", [["lag"], ["lag", "billing"], ["lag", "show", "billing"]])
def test_without_a_command_the_lag_is_shown(spec: str, words: list[str]) -> None:
    """`lag`, `lag GROUP` and `lag show GROUP` are the same command; a group that stopped is exit code 2."""
    shown = CliRunner().invoke(main.app, [*words, "--store", spec, "--at", "2026-11-20T10:00"])
    assert "billing" in shown.stdout
    assert "ERR" in shown.stdout
    assert shown.exit_code == 2


def test_a_group_that_nobody_knows_is_unknown(spec: str) -> None:
    """Exit code 3, and a sentence that says what to look at."""
    shown = CliRunner().invoke(main.app, ["lag", "nobody", "--store", spec, "--at", "2026-11-20T10:00"])
    assert "'nobody'" in shown.stdout
    assert shown.exit_code == 3


@pytest.mark.parametrize("text", ["2026-11-20T10:00", "2026-11-20T12:00+02:00"])
def test_a_moment_is_in_utc_unless_it_says_otherwise(text: str) -> None:
    """A time without an offset does not depend on the machine's zone."""
    assert o.moment("--at", text) == AT_MS


@pytest.mark.parametrize("text", ["noon", *INVALID_TIMES])
def test_a_moment_that_is_none_is_refused(text: str) -> None:
    """The sentence names the option and shows the form."""
    with pytest.raises(ConfigError, match=rf"^--at: '{re.escape(text)}'"):
        o.moment("--at", text)
