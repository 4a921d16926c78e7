"""`tallystream top`: what it shows, and its size."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from support.lag import Rounds, group, round_of
from support.levels import sum_point
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader
from tallystream_cli import main
from tallystream_dashboards.terminal.top import read_overview, screen

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
    assert shown.exit_code == 1
    title, answer, empty, head, billing, _, sums, first, second = shown.stdout.splitlines()
    assert title.startswith("Tallystream ")
    assert answer.startswith("Group billing is ERR for ")
    assert ": STOP in orders/0" in answer
    assert empty == ""
    assert head.split() == ["STATUS", "LAG", "TIME", "LAG", "CATCHES", "UP", "IN", "GROUP"]
    assert billing.split()[:2] == ["ERR", "880"]
    assert billing.endswith("never at this rate  billing")
    assert sums.split() == ["VALUE", "RATE/S", "INSTANCES", "APP", "SUM"]
    assert "sum.01 t=a-group" in first
    assert "sum.00 t=a-group" in second


def test_everything_is_well(tmp_path: Path) -> None:
    """The first answer says so if no group is WARN or ERR, lag is collected and there are sums."""
    shown = CliRunner().invoke(main.app, ["top", "--store", fill(tmp_path / "store.db", stopped=False), "--once"])
    assert shown.stdout.splitlines()[1].rstrip() == "Everything is well. Groups: 1, none WARN or ERR."
    assert shown.exit_code == 0


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
    """The exit code is 3."""
    monkeypatch.setenv("INFLUXDB_TOKEN", "t")
    monkeypatch.setenv("INFLUXDB_ORG", "o")
    shown = CliRunner().invoke(main.app, ["top", "--store", "influxdb:http://127.0.0.1:1"])
    assert shown.stdout.startswith("The store can't be read: ")
    assert shown.exit_code == 3


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_it_fits_the_terminal(tmp_path: Path, columns: int, lines: int) -> None:
    """A screen with the line of the cursor has the terminal's lines, and no line is longer than its columns."""
    store = StoreSettings.parse(fill(tmp_path / "store.db", stopped=True, groups=40, sums=40))
    reader = open_reader(store)
    shown = screen(read_overview(reader, round(time.time() * 1000)), columns, lines).splitlines()
    reader.close()
    assert len(shown) == lines - 1
    assert max(map(len, shown)) <= columns
    rows = (lines - 7) // 2
    assert [line for line in shown if line.endswith((f"GROUP ({rows} of 40)", f"GROUP ({rows + 1} of 40)"))]
