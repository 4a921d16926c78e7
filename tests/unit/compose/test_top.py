"""`tallystream top`: what it shows, its size, and how it ends, in a pseudo-terminal and without one."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from support.lag import Rounds, group, round_of
from support.levels import sum_point
from support.terminal import LEAVE, TerminalProcess, widths
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli import main
from tallystream_cli.top.run import TopSettings
from tallystream_cli.top.screen import rows_of, shortened

if TYPE_CHECKING:
    from pathlib import Path

LONG = "a-group-with-a-name-that-is-much-too-long-for-one-column-of-a-terminal-"


def fill(path: Path, *, stopped: bool, groups: int = 1, sums: int = 2) -> str:
    """Return a store of now, with a group of which all is consumed or that has stopped, and with growing sums."""
    store = LocalStore(path, retention_ms=0)
    store.setup()
    now_ms = round(time.time() * 1000)
    rounds = Rounds()
    for ago in range(300, -1, -2):
        end = 9_900 - ago * 10
        committed = min(9_020, end) if stopped else end
        others = [group(f"{LONG}{number}", (end, end), topic=f"t{number}") for number in range(groups - 1)]
        billing = group("billing", (committed, end), members=0 if stopped else 1)
        store.write(rounds.points(round_of(billing, *others), now_ms - ago * 1000))
    for number in range(sums):
        for ago in (90, 1):
            point = sum_point(
                "counter", (100 - ago) * number, now_ms - ago * 1000, name=f"sum.{number:02}", tags={"t": LONG}
            )
            store.write([point])
    store.close()
    return f"local:{path}"


def test_one_screen_has_the_answer_the_groups_and_the_sums(tmp_path: Path) -> None:
    """Without a terminal one screen is printed: what is not well first, then groups, then sums, the fastest first."""
    shown = CliRunner().invoke(main.app, ["top", "--store", fill(tmp_path / "store.db", stopped=True)])
    assert shown.exit_code == 0
    title, answer, empty, head, billing, _, sums, first, second = [line.rstrip() for line in shown.stdout.splitlines()]
    assert title.startswith("Tallystream ")
    assert answer.startswith("Group billing is ERR for ")
    assert ": STOP in orders/0" in answer
    assert answer.endswith("…")
    assert empty == ""
    assert head.split("  ")[0] == "GROUP"
    assert billing.split()[:3] == ["billing", "ERR", "880"]
    assert billing.endswith("never at this rate")
    assert sums.split() == ["SUM", "APP", "VALUE", "RATE/S", "INSTANCES"]
    assert first.startswith("sum.01 t=a-group")
    assert second.startswith("sum.00 t=a-group")


def test_everything_is_well(tmp_path: Path) -> None:
    """The first answer says so if no group is WARN or ERR, lag is collected and there are sums."""
    shown = CliRunner().invoke(main.app, ["top", "--store", fill(tmp_path / "store.db", stopped=False), "--once"])
    assert shown.stdout.splitlines()[1].rstrip() == "Everything is well. Groups: 1, none WARN or ERR."


def test_json_has_the_same(tmp_path: Path) -> None:
    """One object, with the groups as in `lag --json` and the sums as in `sums --json`."""
    shown = CliRunner().invoke(main.app, ["top", "--store", fill(tmp_path / "store.db", stopped=True), "--json"])
    found = json.loads(shown.stdout)
    assert found["well"] is False
    assert found["problems"][0].startswith("Group billing is ERR")
    assert [(one["group"], one["lag"]) for one in found["groups"]] == [("billing", 880)]
    assert [one["name"] for one in found["sums"]] == ["sum.01", "sum.00"]
    assert found["sums"][0]["rate"] > 1


def test_a_store_that_can_not_be_read_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One screen then has exit code 3."""
    monkeypatch.setenv("INFLUXDB_TOKEN", "t")
    options = ("--store", "influxdb:http://127.0.0.1:1", "--org", "o")
    shown = CliRunner().invoke(main.app, ["top", *options])
    assert shown.stdout.splitlines()[1].startswith("The store can't be read: ")
    assert shown.exit_code == 3


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_it_fits_the_terminal_and_ends_with_q(tmp_path: Path, columns: int, lines: int) -> None:
    """A screen has exactly the terminal's lines and columns. `q` ends it with code 0 and restores the terminal."""
    store = fill(tmp_path / "store.db", stopped=True, groups=40, sums=40)
    arguments = ("top", "--store", store, "--interval", "0.5")
    with TerminalProcess(arguments, columns=columns, lines=lines) as terminal:
        terminal.read_until("sum.39")
        terminal.read_until("q quits")
        terminal.press("q")
        assert terminal.wait() == 0
        assert terminal.restored()
        screen = terminal.screens()[0]
        assert (len(screen), set(widths(screen))) == (lines, {columns})
        assert [line.split("  ")[0] for line in screen if "of 40)" in line] == [
            f"GROUP ({(lines - 6) // 2} of 40)",
            f"SUM ({(lines - 6) // 2} of 40)",
        ]
        names = [line.split()[0] for line in screen if line.startswith("a-group")]
        assert len(set(names)) == (lines - 6) // 2 - 1, "names that differ at their ends are still different"


def test_it_draws_again_when_the_size_changes(tmp_path: Path) -> None:
    """A new size is noticed at once, before the next refresh."""
    with TerminalProcess(
        ("top", "--store", fill(tmp_path / "store.db", stopped=True, groups=40, sums=40), "--interval", "3600")
    ) as terminal:
        terminal.read_until("sum.39")
        terminal.resize(100, 30)
        terminal.read_until("SUM (12 of 40)")
        terminal.press("q")
        assert terminal.wait() == 0
        screen = terminal.screens()[-1]
        assert (len(screen), set(widths(screen))) == (30, {100})


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_a_signal_restores_the_terminal(tmp_path: Path, how: str) -> None:
    """SIGTERM and Ctrl-C end it with code 0: the first screen, the cursor and the terminal's mode are as before."""
    with TerminalProcess(("top", "--store", fill(tmp_path / "store.db", stopped=False))) as terminal:
        terminal.read_until("sum.01")
        assert not terminal.restored()
        if how == "Ctrl-C":
            terminal.press("\x03")
        else:
            terminal.process.send_signal(signal.Signals[how])
        assert terminal.wait() == 0
        assert terminal.restored()
        assert terminal.text.rpartition(LEAVE)[2].strip("\r\n\x1b[?25h") == ""


def test_ctrl_z_does_not_suspend_it(tmp_path: Path) -> None:
    """A suspended command would leave its screen behind, so the key is no signal until the end."""
    with TerminalProcess(("top", "--store", fill(tmp_path / "store.db", stopped=False))) as terminal:
        assert terminal.suspends()
        terminal.read_until("sum.01")
        assert not terminal.suspends()
        terminal.press("q")
        assert terminal.wait() == 0
        assert terminal.suspends()


def test_an_interval_out_of_bounds_is_refused() -> None:
    """The sentence names the option."""
    with pytest.raises(ConfigError, match=r"--interval: 0\.1"):
        TopSettings(store=StoreSettings.parse("local:x"), interval_s=0.1)


@pytest.mark.parametrize(
    ("groups", "sums", "left", "rows"),
    [
        (40, 40, 18, (9, 9)),
        (2, 40, 18, (2, 16)),
        (40, 2, 18, (16, 2)),
        (1, 1, 18, (1, 1)),
        (40, 40, 0, (0, 0)),
        (0, 9, 4, (0, 4)),
    ],
)
def test_groups_and_sums_share_the_lines(groups: int, sums: int, left: int, rows: tuple[int, int]) -> None:
    """Each has half of the lines, and those that the other one does not need."""
    assert rows_of(groups, sums, left) == rows


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [("orders", 6, "orders"), ("orders-consumer-1", 9, "orde…er-1"), ("東京東京東京", 8, "東京… 京"), ("abc", 2, "a…")],
)
def test_a_long_name_loses_its_middle(text: str, width: int, short: str) -> None:
    """Its width is counted in cells of the terminal: a Chinese character has two."""
    assert shortened(text, width) == short
    assert cell_len(shortened(text, width)) <= width
